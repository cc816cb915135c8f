import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import org.apache.beam.sdk.nexmark.NexmarkConfiguration;
import org.apache.beam.sdk.nexmark.NexmarkUtils;
import org.apache.beam.sdk.nexmark.queries.NexmarkQueryModel;
import org.apache.beam.sdk.nexmark.queries.Query0Model;
import org.apache.beam.sdk.nexmark.queries.Query2Model;
import org.apache.beam.sdk.nexmark.queries.Query3Model;
import org.apache.beam.sdk.nexmark.queries.Query5Model;
import org.apache.beam.sdk.nexmark.queries.Query7Model;
import org.apache.beam.sdk.nexmark.queries.Query8Model;
import org.apache.beam.sdk.values.TimestampedValue;

/** Prints the events of Beam's generator, and the results of its models, as lines of JSON. */
public class Beam {
  public static void main(String[] arguments) {
    NexmarkConfiguration configuration = NexmarkConfiguration.DEFAULT.copy();
    configuration.numEvents = Long.parseLong(arguments[0]);
    configuration.numEventGenerators = 1;
    configuration.firstEventRate = configuration.nextEventRate = Integer.parseInt(arguments[1]);
    configuration.windowSizeSec = 10;
    configuration.windowPeriodSec = 2;
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    print(out, "event", NexmarkUtils.standardEventIterator(configuration));
    List<NexmarkQueryModel<?>> models =
        List.of(
            new Query0Model(configuration),
            new Query2Model(configuration),
            new Query3Model(configuration),
            new Query5Model(configuration),
            new Query7Model(configuration),
            new Query8Model(configuration));
    for (NexmarkQueryModel<?> model : models) {
      String query = model.getClass().getSimpleName().replaceAll("\\D", "");
      print(out, "q" + query, model.simulator().results());
    }
    out.flush();
  }

  private static void print(
      PrintStream out, String kind, Iterator<? extends TimestampedValue<?>> values) {
    while (values.hasNext()) {
      TimestampedValue<?> each = values.next();
      long at = each.getTimestamp().getMillis();
      out.println("{\"kind\":\"" + kind + "\",\"at\":" + at + ",\"value\":" + each.getValue() + "}");
    }
  }
}
