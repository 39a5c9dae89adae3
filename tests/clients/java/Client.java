// One command of one client: Client KIND BOOTSTRAP GROUP TOPIC COMMAND [ARGUMENT]; see tests/clients/test_clients.py.
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.*;

public class Client {
    static final long WAIT_MS = 12_000, QUIET_MS = 2_000;
    static String bootstrap, group, topic, command, argument;
    static final Map<Integer, Long> first = new TreeMap<>();

    static Properties settings(String... more) {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) found.put(more[i], more[i + 1]);
        return found;
    }

    static void tell(String json) {
        System.out.println(json);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void tellFirst() {
        StringBuilder text = new StringBuilder("{");
        first.forEach((p, o) -> text.append(text.length() > 1 ? "," : "").append("\"" + p + "\":" + o));
        tell(text + "}");
    }

    static void end(long read) {
        if (command.equals("where")) tellFirst();
        tell("{\"read\":" + read + "}");
    }

    static void consumer(String protocol) throws Exception {
        Properties s = settings("group.id", group, "group.protocol", protocol, "enable.auto.commit", "false", "auto.offset.reset", "earliest", "max.poll.records", "1");
        if (protocol.equals("classic")) s.put("session.timeout.ms", "6000");
        var d = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(s, d, d)) {
            TopicPartition tp = new TopicPartition(topic, 0);
            if (command.equals("reset")) {
                Map<TopicPartition, Long> found = argument.equals("start") ? consumer.beginningOffsets(List.of(tp)) : consumer.endOffsets(List.of(tp));
                try (Admin admin = Admin.create(settings())) {
                    for (int turn = 0; ; turn++) {
                        try {
                            admin.alterConsumerGroupOffsets(group, Map.of(tp, new OffsetAndMetadata(found.get(tp)))).all().get();
                            break;
                        } catch (ExecutionException e) { // a member that was killed is still listed
                            if (turn == 20) throw e;
                            Thread.sleep(1_000);
                        }
                    }
                }
                tell("{}");
            }
            if (command.equals("transact")) {
                var b = new ByteArraySerializer();
                try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings("transactional.id", group + "-tx"), b, b)) {
                    producer.initTransactions();
                    producer.beginTransaction();
                    producer.sendOffsetsToTransaction(Map.of(tp, new OffsetAndMetadata(Long.parseLong(argument))), new ConsumerGroupMetadata(group));
                    producer.commitTransaction();
                }
                tell("{}");
            }
            consumer.subscribe(List.of(topic));
            long until = System.currentTimeMillis() + WAIT_MS;
            int read = 0, wanted = command.equals("read") ? Integer.parseInt(argument) : Integer.MAX_VALUE;
            while (System.currentTimeMillis() < until && read < wanted) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    if (command.equals("where")) {
                        if (first.putIfAbsent(one.partition(), one.offset()) == null || read++ == 0) until = System.currentTimeMillis() + QUIET_MS;
                    } else {
                        consumer.commitSync(Map.of(new TopicPartition(topic, one.partition()), new OffsetAndMetadata(one.offset() + 1, one.leaderEpoch(), "")));
                        read++;
                    }
                }
            }
            consumer.close();
            end(read);
        }
    }

    static void share() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            if (command.equals("reset")) {
                TopicPartition tp = new TopicPartition(topic, 0);
                OffsetSpec spec = argument.equals("start") ? OffsetSpec.earliest() : OffsetSpec.latest();
                long to = admin.listOffsets(Map.of(tp, spec)).all().get().get(tp).offset();
                admin.alterShareGroupOffsets(group, Map.of(tp, to)).all().get();
                tell("{}");
            }
            var resource = new org.apache.kafka.common.config.ConfigResource(org.apache.kafka.common.config.ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET), new AlterConfigOp(new ConfigEntry("share.delivery.count.limit", "25"), AlterConfigOp.OpType.SET)))).all().get();
        }
        var d = new ByteArrayDeserializer();
        Properties s = settings("group.id", group, "share.acknowledgement.mode", "explicit", "max.poll.records", "1");
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(s, d, d)) {
            consumer.subscribe(List.of(topic));
            long until = System.currentTimeMillis() + WAIT_MS;
            int read = 0, wanted = command.equals("read") ? Integer.parseInt(argument) : Integer.MAX_VALUE;
            int partitions = argument.isEmpty() ? 1 : Integer.parseInt(argument);
            while (System.currentTimeMillis() < until && read < wanted && (!command.equals("where") || first.size() < partitions)) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) { // each time is a delivery
                    if (command.equals("where")) {
                        consumer.acknowledge(one, AcknowledgeType.RELEASE);
                        first.merge(one.partition(), one.offset(), Math::min);
                    } else if (read < wanted) {
                        consumer.acknowledge(one, AcknowledgeType.ACCEPT);
                        read++;
                    } else {
                        consumer.acknowledge(one, AcknowledgeType.RELEASE);
                    }
                }
                consumer.commitSync();
            }
            consumer.close();
            end(read);
        }
    }

    static void streams() throws Exception {
        if (!List.of("read", "where").contains(command)) {
            consumer("classic");
            return;
        }
        CountDownLatch done = new CountDownLatch(command.equals("where") ? 1 : Integer.parseInt(argument));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())).process(() -> new ContextualProcessor<byte[], byte[], byte[], byte[]>() {
            @Override public void process(org.apache.kafka.streams.processor.api.Record<byte[], byte[]> record) {
                var at = context().recordMetadata().get();
                if (command.equals("where")) {
                    synchronized (first) { first.putIfAbsent(at.partition(), at.offset()); }
                    done.countDown();
                    if (first.size() < Integer.parseInt(argument.isEmpty() ? "1" : argument)) return;
                    tellFirst();
                }
                if (done.getCount() == 0) { // no more than was asked for is committed
                    try { Thread.sleep(60_000); } catch (InterruptedException e) { throw new RuntimeException(e); }
                }
                context().commit();
                done.countDown();
            }
        });
        Properties s = settings("application.id", group, "processing.guarantee", "exactly_once_v2", "auto.offset.reset", "earliest", "commit.interval.ms", "100", "max.poll.records", "1", "session.timeout.ms", "6000", "state.dir", System.getProperty("java.io.tmpdir") + "/" + group, "replication.factor", "3");
        KafkaStreams streams = new KafkaStreams(builder.build(), s);
        streams.start();
        done.await(2 * WAIT_MS, TimeUnit.MILLISECONDS);
        Thread.sleep(1_500);
        end((command.equals("where") ? 0 : Integer.parseInt(argument)) - done.getCount());
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[1];
        group = arguments[2];
        topic = arguments[3];
        command = arguments[4];
        argument = arguments.length > 5 ? arguments[5] : "";
        switch (arguments[0]) {
            case "java-classic" -> consumer("classic");
            case "java-consumer" -> consumer("consumer");
            case "java-share" -> share();
            default -> streams();
        }
        Runtime.getRuntime().halt(0);
    }
}
