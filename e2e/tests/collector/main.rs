//! Traces and metrics at a real collector of OpenTelemetry: `make collector`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use pronghorn_testkit::{Server, Site, built, free_address, wait_for};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A collector that writes what it gets into a file.
struct Collector {
    process: Child,
    written: PathBuf,
}

impl Collector {
    fn start(site: &Site, protocol: &str, address: &str) -> Self {
        let config = format!(
            "receivers: {{otlp: {{protocols: {{{protocol}: {{endpoint: '{address}'}}}}}}}}\n\
             exporters: {{debug: {{verbosity: detailed}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n\
             \x20   traces: {{receivers: [otlp], exporters: [debug]}}\n\
             \x20   metrics: {{receivers: [otlp], exporters: [debug]}}\n"
        );
        site.write("collector.yaml", &config);
        let written = site.path("collector.log");
        let log = std::fs::File::create(&written).expect("a file");
        let target = built("pronghorn").with_file_name("..");
        let binary = target.join("tools/otelcol");
        let process = Command::new(binary)
            .arg("--config")
            .arg(site.path("collector.yaml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("`scripts/need otelcol` has built it");
        let collector = Self { process, written };
        collector.writes("Everything is ready");
        collector
    }

    /// Waits until it has written this.
    fn writes(&self, text: &str) -> String {
        wait_for(text, || {
            let written = std::fs::read_to_string(&self.written).ok()?;
            written.contains(text).then_some(written)
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        _ = self.process.kill(); // it has ended already
        _ = self.process.wait();
    }
}

#[test]
fn it_takes_traces_and_metrics_over_http_and_grpc() {
    for (protocol, compress) in [
        ("http", true),
        ("http", false),
        ("grpc", true),
        ("grpc", false),
    ] {
        let address = free_address();
        let config = format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 1}}}}\n\
             otel:\n  insecure: true\n  client: {protocol}\n  compress: {compress}\n  endpoint: {address}\n\
             \x20 batch: {{wait: 50ms}}\n  metrics: {{interval: 1s}}\n  resource: {{service_name: shop}}\n"
        );
        let worker = Site::sdk_worker("return $request->header('traceparent');");
        let site = Site::new().file("worker.php", &worker).config(&config);
        let collector = Collector::start(&site, protocol, &address.to_string());
        let server = Server::start(site);
        let mut connection = server.connect();
        let caller = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
        connection.request("GET", "/", &caller);
        let told = connection.response().text();
        let php = told.split('-').nth(2).expect("a span");

        let written = collector.writes(&format!("ID             : {php}"));
        for part in [
            format!("Trace ID       : {TRACE}"),
            format!("Parent ID      : {CALLER}"),
            "-> service.name: Str(shop)".to_owned(),
            "Name           : php".to_owned(),
            "-> http.response.status_code: Int(200)".to_owned(),
        ] {
            assert!(written.contains(&part), "{part} in\n{written}");
        }
        collector.writes("Name: pronghorn_http_request_duration_seconds");
        let log = server.log();
        assert!(!log.contains("does not take"), "{log}");
        server.stop();
    }
}
