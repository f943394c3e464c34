import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.zip.Deflater;

/** Reports in direct buffers, compressed by zlib: native memory. A few buffers of each are kept. */
public class Service {
    static final Map<Integer, List<ByteBuffer>> KEPT = new ConcurrentHashMap<>();

    static byte[] report(int day) {
        Random random = new Random(day);
        List<ByteBuffer> parts = new ArrayList<>();
        List<ByteBuffer> kept = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            ByteBuffer part = ByteBuffer.allocateDirect(500 + random.nextInt(12_000));
            while (part.remaining() >= 8) {
                part.putLong(random.nextInt(1000));
            }
            part.flip();
            parts.add(part);
            if (i % 200 == 0) {
                kept.add(part);
            }
        }
        KEPT.put(day % 50, kept);
        Deflater deflater = new Deflater(Deflater.BEST_SPEED);
        ByteBuffer out = ByteBuffer.allocateDirect(64 << 10);
        int total = 0;
        for (ByteBuffer part : parts) {
            deflater.setInput(part.duplicate());
            while (!deflater.needsInput()) {
                out.clear();
                total += deflater.deflate(out);
            }
        }
        deflater.end();
        return (total + "\n").getBytes();
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8000"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/report/", exchange -> {
            byte[] answer = report(Integer.parseInt(exchange.getRequestURI().getPath().substring("/report/".length())));
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }
}
