import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.Provider;
import java.security.Security;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.Subject;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.spi.LoginModule;
import javax.security.sasl.SaslServer;
import javax.security.sasl.SaslServerFactory;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** What an MSK broker does with IAM identities, for one that it knows: AWS_MSK_IAM, and its tokens for OAUTHBEARER. */
public class MskListener {
    static final String ACCESS_KEY = "AKIDKRETAIN";
    static final String SECRET_KEY = "s3cret/key+of=kretain";
    static final String SESSION_TOKEN = "session/token+of=kretain";
    static final String REGION = "eu-central-1";
    static final String HOST = "127.0.0.1";
    static final Set<String> FIELDS = Set.of("version", "host", "user-agent", "action", "x-amz-algorithm",
            "x-amz-credential", "x-amz-date", "x-amz-security-token", "x-amz-signedheaders", "x-amz-expires",
            "x-amz-signature");

    /** Kafka loads it by its name in the jaas line; the mechanism comes with it. */
    public static class Login implements LoginModule {
        static {
            Security.addProvider(new Iam());
        }

        public void initialize(Subject subject, CallbackHandler handler, Map<String, ?> state, Map<String, ?> options) { }

        public boolean login() {
            return true;
        }

        public boolean commit() {
            return true;
        }

        public boolean abort() {
            return false;
        }

        public boolean logout() {
            return true;
        }
    }

    static class Iam extends Provider {
        Iam() {
            super("MSK's IAM", "1", "for tests");
            put("SaslServerFactory.AWS_MSK_IAM", Factory.class.getName());
        }
    }

    public static class Factory implements SaslServerFactory {
        public SaslServer createSaslServer(
                String mechanism, String protocol, String name, Map<String, ?> settings, CallbackHandler handler) {
            return new Server();
        }

        public String[] getMechanismNames(Map<String, ?> settings) {
            return new String[] {"AWS_MSK_IAM"};
        }
    }

    static class Server implements SaslServer {
        private long until;

        public byte[] evaluateResponse(byte[] response) {
            try {
                Map<String, String> fields = new HashMap<>();
                new ObjectMapper().readTree(response).fields().forEachRemaining(
                        one -> fields.put(one.getKey(), one.getValue().textValue()));
                check(fields.keySet().equals(FIELDS), "fields " + fields.keySet());
                check(fields.get("version").equals("2020_10_22"), "version");
                until = verified(fields, HOST);
                return "{\"version\":\"2020_10_22\",\"request-id\":\"1\"}".getBytes(StandardCharsets.UTF_8);
            } catch (Exception error) {
                throw new SaslAuthenticationException("Access denied: " + error.getMessage());
            }
        }

        public String getMechanismName() {
            return "AWS_MSK_IAM";
        }

        public boolean isComplete() {
            return until > 0;
        }

        public String getAuthorizationID() {
            return ACCESS_KEY;
        }

        public Object getNegotiatedProperty(String name) {
            return name.equals("CREDENTIAL.LIFETIME.MS") ? until : null;
        }

        public byte[] unwrap(byte[] data, int offset, int length) {
            throw new IllegalStateException();
        }

        public byte[] wrap(byte[] data, int offset, int length) {
            throw new IllegalStateException();
        }

        public void dispose() { }
    }

    /** For OAUTHBEARER. */
    public static class Tokens implements AuthenticateCallbackHandler {
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) { }

        public void close() { }

        public void handle(Callback[] callbacks) {
            for (Callback one : callbacks)
                if (one instanceof OAuthBearerValidatorCallback asked) {
                    try {
                        asked.token(token(asked.tokenValue()));
                    } catch (Exception error) {
                        asked.error("invalid_token", null, null);
                    }
                }
        }

        private static OAuthBearerToken token(String value) throws Exception {
            String url = new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8);
            String host = "kafka." + REGION + ".amazonaws.com";
            check(url.startsWith("https://" + host + "?"), "address");
            Map<String, String> fields = new HashMap<>(Map.of("host", host));
            for (String one : url.substring(url.indexOf('?') + 1).split("&"))
                fields.put(one.substring(0, one.indexOf('=')).toLowerCase(),
                        URLDecoder.decode(one.substring(one.indexOf('=') + 1), StandardCharsets.UTF_8));
            long until = verified(fields, host);
            return new OAuthBearerToken() {
                public String value() {
                    return value;
                }

                public Set<String> scope() {
                    return Set.of();
                }

                public long lifetimeMs() {
                    return until;
                }

                public String principalName() {
                    return ACCESS_KEY;
                }

                public Long startTimeMs() {
                    return null;
                }
            };
        }
    }

    /** Until when (Unix ms) a signed request to Connect holds: its signature is computed anew. */
    static long verified(Map<String, String> fields, String host) throws Exception {
        DateTimeFormatter format = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
        Instant signed = Instant.from(format.parse(fields.get("x-amz-date")));
        Instant until = signed.plusSeconds(Long.parseLong(fields.get("x-amz-expires")));
        String day = fields.get("x-amz-date").substring(0, 8);
        String scope = day + "/" + REGION + "/kafka-cluster/aws4_request";
        check(Math.abs(signed.getEpochSecond() - Instant.now().getEpochSecond()) < 300, "clock");
        check(fields.get("x-amz-expires").equals("900"), "expiry");
        check(fields.get("host").equals(host), "host " + fields.get("host"));
        check(fields.get("action").equals("kafka-cluster:Connect"), "action");
        check(fields.get("x-amz-algorithm").equals("AWS4-HMAC-SHA256"), "algorithm");
        check(fields.get("x-amz-signedheaders").equals("host"), "signed headers");
        check(fields.get("x-amz-security-token").equals(SESSION_TOKEN), "session token");
        check(fields.get("x-amz-credential").equals(ACCESS_KEY + "/" + scope), "credential");
        Map<String, String> query = new TreeMap<>();
        for (String name : List.of("Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
                "X-Amz-Security-Token", "X-Amz-SignedHeaders"))
            query.put(name, encoded(fields.get(name.toLowerCase())));
        StringBuilder joined = new StringBuilder();
        query.forEach((name, value) -> joined.append(joined.isEmpty() ? "" : "&").append(name + "=" + value));
        String request = "GET\n/\n" + joined + "\nhost:" + host + "\n\nhost\n" + digest("");
        byte[] key = ("AWS4" + SECRET_KEY).getBytes(StandardCharsets.UTF_8);
        for (String part : List.of(day, REGION, "kafka-cluster", "aws4_request"))
            key = hmac(key, part);
        String text = "AWS4-HMAC-SHA256\n" + fields.get("x-amz-date") + "\n" + scope + "\n" + digest(request);
        check(HexFormat.of().formatHex(hmac(key, text)).equals(fields.get("x-amz-signature")), "signature");
        return until.toEpochMilli();
    }

    static void check(boolean holds, String what) {
        if (!holds)
            throw new IllegalArgumentException(what);
    }

    static String encoded(String value) {
        return URLEncoder.encode(value, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A");
    }

    static String digest(String text) throws Exception {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    static byte[] hmac(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }
}
