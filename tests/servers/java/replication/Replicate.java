import java.util.regex.Pattern;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;

/** Does what `add_peer` and `enable_table_replication` of HBase's shell do: arguments are the peer's key and a prefix. */
public class Replicate {
  public static void main(String[] arguments) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      ReplicationPeerConfig peer = ReplicationPeerConfig.newBuilder().setClusterKey(arguments[0]).build();
      admin.addReplicationPeer("second", peer);
      for (TableName table : admin.listTableNames(Pattern.compile(arguments[1] + "_.*"))) {
        admin.enableTableReplication(table);
      }
    }
  }
}
