import java.util.Scanner;
import java.util.stream.IntStream;

/** Parallel work on the common pool, which has as many threads as the JVM counts CPUs; as in units.py. */
public final class Stacks {
    public static void main(String[] arguments) throws Exception {
        work();
        System.out.printf("{\"says\": %d}%n", Runtime.getRuntime().availableProcessors());
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine(); ) {
            double most = Double.parseDouble(lines.nextLine());
            long start = System.nanoTime();
            int units = 0;
            for (; seconds(start) < most; units++) {
                work();
            }
            System.out.printf("{\"units\": %d, \"seconds\": %.6f}%n", units, seconds(start));
        }
    }

    private static double seconds(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private static double work() {
        return IntStream.range(0, 1_000_000).parallel().mapToDouble(Math::sqrt).sum();
    }
}
