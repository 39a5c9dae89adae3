import java.lang.reflect.Method;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.Base64;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.signer.Aws4Signer;
import software.amazon.awssdk.auth.signer.params.Aws4PresignerParams;
import software.amazon.awssdk.http.SdkHttpFullRequest;
import software.amazon.msk.auth.iam.internals.AWS4SignedPayloadGenerator;
import software.amazon.msk.auth.iam.internals.AuthenticationRequestParams;
import software.amazon.msk.auth.iam.internals.UserAgentUtils;

/**
 * Prints what aws-msk-iam-auth sends for HOST ACCESS-KEY SECRET-KEY SESSION-TOKEN INSTANT: its user agent, AWS_MSK_IAM's
 * payload and the token for OAUTHBEARER (in which HOST is the region's). All steps are the library's own, which reads the
 * clock; so its steps are taken one by one, and the signer, which takes a clock, gets a fixed one.
 */
public class MskSigner {
    public static void main(String[] given) throws Exception {
        AwsCredentials credentials = given[3].isEmpty()
                ? AwsBasicCredentials.create(given[1], given[2])
                : AwsSessionCredentials.create(given[1], given[2], given[3]);
        Instant now = Instant.parse(given[4]);
        String agent = UserAgentUtils.getUserAgentValue();
        AuthenticationRequestParams params = AuthenticationRequestParams.create(given[0], credentials, agent);
        AWS4SignedPayloadGenerator generator = new AWS4SignedPayloadGenerator();
        SdkHttpFullRequest request = (SdkHttpFullRequest) step("createRequestForSigning", params.getClass())
                .invoke(generator, params);
        Aws4PresignerParams signing = (Aws4PresignerParams) step("createSigningParams", params.getClass())
                .invoke(generator, params);
        SdkHttpFullRequest signed = Aws4Signer.create().presign(request, signing.copy(b -> b
                .expirationTime(now.plus(Duration.ofMinutes(15)))
                .signingClockOverride(Clock.fixed(now, ZoneOffset.UTC))));
        System.out.println(agent);
        System.out.println(new String((byte[]) step("toPayloadBytes", SdkHttpFullRequest.class, params.getClass())
                .invoke(generator, signed, params), "UTF-8"));
        // as IAMOAuthBearerLoginCallbackHandler.generateTokenValue has it
        String url = signed.toBuilder().appendRawQueryParameter("User-Agent", agent).build().getUri().toString();
        System.out.println(Base64.getUrlEncoder().withoutPadding().encodeToString(url.getBytes("UTF-8")));
    }

    private static Method step(String name, Class<?>... of) throws Exception {
        Method step = AWS4SignedPayloadGenerator.class.getDeclaredMethod(name, of);
        step.setAccessible(true);
        return step;
    }
}
