//! Redis as several processes.

use std::process::Command;

use crate::{Engine, free_address, wait_for};

impl Engine {
    /// The nodes of a cluster that is up. Each of them has a third of the slots.
    ///
    /// # Panics
    ///
    /// When Redis is not installed, or the cluster does not come up.
    pub fn redis_cluster(more: &[&str]) -> [Self; 3] {
        let nodes = [(); 3].map(|()| {
            // Without it, that is a port which is not looked at: the node's own and 10,000.
            let bus = free_address().port().to_string();
            let mode = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            (Self::redis(&[&mode, more].concat()), bus)
        });
        let slots = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        let [(first, bus), ..] = &nodes;
        let meet = [
            "cluster",
            "meet",
            "127.0.0.1",
            &first.port().to_string(),
            bus,
        ];
        for ((node, _), (from, to)) in nodes.iter().zip(slots) {
            wait_for("a node to have its slots", || {
                (node.redis_cli(&["cluster", "addslotsrange", from, to]) == "OK").then_some(())
            });
            node.redis_cli(&meet);
        }
        let nodes = nodes.map(|(node, _)| node);
        for node in &nodes {
            wait_for("the cluster to come up", || {
                let info = node.redis_cli(&["cluster", "info"]);
                let is_up = ["cluster_state:ok", "cluster_size:3"];
                is_up.iter().all(|it| info.contains(it)).then_some(())
            });
        }
        nodes
    }

    /// A sentinel that calls a Redis `main`, and takes it for down after half a second.
    ///
    /// # Panics
    ///
    /// When Redis is not installed.
    pub fn redis_sentinel(master: &Self) -> Self {
        let port = master.port();
        // It keeps what it learns in a file that has to be there.
        Self::start("sh", |own| {
            let options = format!("--port {own} --bind 127.0.0.1");
            let watched = format!(
                "--sentinel monitor main 127.0.0.1 {port} 1 \
                 --sentinel down-after-milliseconds main 500 \
                 --sentinel failover-timeout main 3000"
            );
            let script = format!(
                "touch sentinel.conf && exec redis-server sentinel.conf --sentinel {options} {watched}"
            );
            vec!["-c".to_owned(), script]
        })
    }

    /// The answer of a Redis to a command.
    ///
    /// # Panics
    ///
    /// When `redis-cli` is not installed.
    pub fn redis_cli(&self, arguments: &[&str]) -> String {
        let port = self.port().to_string();
        let answer = Command::new("redis-cli")
            .args(["-p", &port])
            .args(arguments)
            .output()
            .expect("redis-cli is there: `scripts/need brokers` installs it");
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }
}
