import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.zip.GZIPOutputStream;

/**
 * Delivers lines of Influx line protocol, as they come on standard input, with nothing but Java (17 or newer):
 *
 * <pre>echo "room,floor=2 temperature=21.5" | SPM_URL=http://localhost:8000 SPM_TOKEN=spm_… java Send.java</pre>
 *
 * In bodies of 5,000 lines, each under an id of its own: what is sent again after a failure is counted once.
 * Lines without a time get the server's; give your own in milliseconds if what you send may have to wait.
 */
public class Send {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    /** One body, until the server has it for good; false where it refuses lines, which saying again would not help. */
    static boolean deliver(List<String> lines) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("SPM_URL") + "/write?precision=ms"))
                .timeout(Duration.ofSeconds(30))
                .header("Authorization", "Bearer " + System.getenv("SPM_TOKEN"))
                .header("Content-Encoding", "gzip")
                .header("X-Message-Id", UUID.randomUUID().toString().replace("-", ""))
                .POST(HttpRequest.BodyPublishers.ofByteArray(packed(lines)))
                .build();
        for (long pause = 1; ; pause = Math.min(2 * pause, 60)) {
            long wait = pause;
            String reason;
            try {
                HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
                int status = answer.statusCode();
                if (status == 204) {
                    return true;
                }
                reason = status + " " + answer.body();
                if (status < 500 && status != 408 && status != 429) {
                    System.err.println(reason);
                    return false;
                }
                wait = answer.headers().firstValueAsLong("Retry-After").orElse(pause);
            } catch (IOException error) { // not there
                reason = error.toString();
            }
            System.err.println("waiting " + wait + " s: " + reason);
            Thread.sleep(1000 * wait);
        }
    }

    private static byte[] packed(List<String> lines) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (GZIPOutputStream packing = new GZIPOutputStream(bytes)) {
            packing.write(String.join("\n", lines).getBytes(StandardCharsets.UTF_8));
        }
        return bytes.toByteArray();
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<String> lines = new ArrayList<>();
        boolean refused = false;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            lines.add(line);
            if (lines.size() == 5000) {
                refused |= !deliver(lines);
                lines.clear();
            }
        }
        if (!lines.isEmpty()) {
            refused |= !deliver(lines);
        }
        System.exit(refused ? 1 : 0);
    }
}
