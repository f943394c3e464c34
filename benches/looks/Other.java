// A Java process in a known state: Other STATE.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

class Other {
    static final List<Object> kept = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 100; i++) {
            switch (arguments[0]) {
                case "heap" -> kept.add(new byte[1_000_000]);
                case "direct" -> {
                    ByteBuffer buffer = ByteBuffer.allocateDirect(3_000_000);
                    for (int at = 0; at < buffer.capacity(); at += 1000) buffer.put(at, (byte) 1);
                    kept.add(buffer);
                }
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
        System.out.println("{\"live\": null, \"held\": null, \"other\": 0}");
        System.in.read();
    }
}
