// One command of one client: main CLIENT BOOTSTRAP GROUP TOPIC COMMAND [ARGUMENT]; see tests/clients/test_clients.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 12 * time.Second

var brokers []string
var group, topic, command, argument string

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number() int {
	n, err := strconv.Atoi(argument)
	must(err)
	return n
}

func tell(value any) {
	must(json.NewEncoder(os.Stdout).Encode(value))
}

type first map[string]int64

func (f first) note(partition int32, offset int64) {
	key := strconv.Itoa(int(partition))
	if _, there := f[key]; !there {
		f[key] = offset
	}
}

// Sarama

type handler struct {
	found  first
	wanted int
	read   int
	seen   time.Time
	done   context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if command == "where" {
				h.found.note(message.Partition, message.Offset)
				time.AfterFunc(2*time.Second, h.done)
			} else if h.read < h.wanted {
				h.read++
				session.MarkMessage(message, "")
				if h.read == h.wanted {
					session.Commit()
					h.done()
				}
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func withSarama() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	if command == "reset" {
		client, err := sarama.NewClient(brokers, config)
		must(err)
		when := sarama.OffsetNewest
		if argument == "start" {
			when = sarama.OffsetOldest
		}
		offset, err := client.GetOffset(topic, 0, when)
		must(err)
		manager, err := sarama.NewOffsetManagerFromClient(group, client)
		must(err)
		one, err := manager.ManagePartition(topic, 0)
		must(err)
		one.ResetOffset(offset, "")
		one.MarkOffset(offset, "")
		manager.Commit()
		tell(map[string]int64{"to": offset})
		return
	}
	joined, err := sarama.NewConsumerGroup(brokers, group, config)
	must(err)
	ctx, done := context.WithTimeout(context.Background(), wait)
	h := &handler{found: first{}, done: done}
	if command == "read" {
		h.wanted = number()
	}
	for ctx.Err() == nil {
		err = joined.Consume(ctx, []string{topic}, h)
		if err != nil && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond)
		}
	}
	must(joined.Close())
	if command == "where" {
		tell(h.found)
	} else {
		tell(map[string]int{"read": h.read})
	}
}

// segmentio/kafka-go

func withKafkaGo() {
	if command == "reset" {
		client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: wait}
		ask := kafka.LastOffsetOf(0)
		if argument == "start" {
			ask = kafka.FirstOffsetOf(0)
		}
		found, err := client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {ask}}})
		must(err)
		offset := found.Topics[topic][0].LastOffset
		if argument == "start" {
			offset = found.Topics[topic][0].FirstOffset
		}
		_, err = client.OffsetCommit(context.Background(), &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: offset}}}})
		must(err)
		tell(map[string]int64{"to": offset})
		return
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 250 * time.Millisecond, SessionTimeout: 6 * time.Second, RebalanceTimeout: 6 * time.Second, HeartbeatInterval: time.Second})
	found, read := first{}, 0
	ctx, done := context.WithTimeout(context.Background(), wait)
	for {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			break
		}
		if command == "where" {
			found.note(int32(message.Partition), message.Offset)
			time.AfterFunc(2*time.Second, done)
			continue
		}
		must(reader.CommitMessages(context.Background(), message))
		read++
		if read == number() {
			break
		}
	}
	must(reader.Close())
	if command == "where" {
		tell(found)
	} else {
		tell(map[string]int{"read": read})
	}
}

// franz-go

func withFranz() {
	if command == "reset" {
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
		must(err)
		admin := kadm.NewClient(client)
		ctx := context.Background()
		found, err := admin.ListEndOffsets(ctx, topic)
		if argument == "start" {
			found, err = admin.ListStartOffsets(ctx, topic)
		}
		must(err)
		must(admin.CommitAllOffsets(ctx, group, found.Offsets()))
		client.Close()
		tell(first{})
		return
	}
	if command == "transact" {
		session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.TransactionalID(group+"-tx"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(), kgo.MaxConcurrentFetches(1))
		must(err)
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		session.PollRecords(ctx, number())
		must(session.Begin())
		_, err = session.End(ctx, kgo.TryCommit)
		must(err)
		session.Close()
		tell(first{})
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second))
	must(err)
	found, read := first{}, 0
	ctx, done := context.WithTimeout(context.Background(), wait)
	for ctx.Err() == nil && (command == "where" || read < number()) {
		fetches := client.PollRecords(ctx, 1)
		fetches.EachRecord(func(record *kgo.Record) {
			if command == "where" {
				found.note(record.Partition, record.Offset)
				time.AfterFunc(2*time.Second, done)
				return
			}
			must(client.CommitRecords(context.Background(), record))
			read++
		})
	}
	client.Close()
	if command == "where" {
		tell(found)
	} else {
		tell(map[string]int{"read": read})
	}
}

func main() {
	arguments := append(os.Args[1:], "")
	brokers = strings.Split(arguments[1], ",")
	group, topic, command, argument = arguments[2], arguments[3], arguments[4], arguments[5]
	map[string]func(){"sarama": withSarama, "kafka-go": withKafkaGo, "franz-go": withFranz}[arguments[0]]()
}
