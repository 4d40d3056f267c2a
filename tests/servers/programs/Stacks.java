import java.util.stream.IntStream;

/** Parallel work on the common pool, which has as many threads as the JVM counts CPUs. */
public final class Stacks {
    public static void main(String[] arguments) throws Exception {
        IntStream.range(0, 1000).parallel().map(one -> one % 2).sum();
        System.out.printf("{\"says\": %d}%n", Runtime.getRuntime().availableProcessors());
        System.in.readAllBytes();
    }
}
