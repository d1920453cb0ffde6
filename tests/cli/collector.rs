//! A collector of OpenTelemetry: it decodes what programs send it.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::ExportMetricsServiceRequest,
        trace::v1::{
            ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
        },
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message as _;

use crate::support::new_loopback;

/// How a collector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// As a collector does.
    Ok,
    /// With this status.
    Status(u16),
    /// As a collector that takes all spans but two.
    RejectsTwo,
    /// As a server of web pages does.
    Page,
    /// Never.
    Never,
}

/// A collector with its own address.
pub(crate) struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A request.
#[derive(Clone, Debug)]
struct Request {
    path: String,
    head: String,
    body: Vec<u8>,
}

impl Collector {
    pub(crate) fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind(new_loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for call in listener.incoming() {
                let call = call.unwrap();
                let seen = Arc::clone(&seen);
                thread::spawn(move || serve(call, answers, &seen));
            }
        });
        Self { address, requests }
    }

    /// Returns an address at which no server is.
    pub(crate) fn gone() -> String {
        let listener = TcpListener::bind(new_loopback()).unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn requests(&self, path: &str) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|it| it.path == path).cloned().collect()
    }

    /// Returns how many requests had this path.
    pub(crate) fn count_of(&self, path: &str) -> usize {
        self.requests(path).len()
    }

    fn traces(&self) -> impl Iterator<Item = ExportTraceServiceRequest> {
        let requests = self.requests("/v1/traces").into_iter();
        requests.map(|it| ExportTraceServiceRequest::decode(&it.body[..]).unwrap())
    }

    /// Returns all spans, in the order of their start.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.traces().flat_map(|it| it.resource_spans);
        let scopes = resources.flat_map(|it| it.scope_spans);
        let mut spans: Vec<Span> = scopes.flat_map(|it| it.spans).collect();
        spans.sort_by_key(|it| it.start_time_unix_nano);
        spans
    }

    /// Returns the attributes of the first resource.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        let resource: Option<Resource> =
            self.traces().flat_map(|it| it.resource_spans).find_map(|it| it.resource);
        attributes(&resource.unwrap().attributes)
    }

    /// Returns the metrics as they were last sent.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let last = self.requests("/v1/metrics").pop().unwrap();
        let request = ExportMetricsServiceRequest::decode(&last.body[..]).unwrap();
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        scopes.flat_map(|it| it.metrics).collect()
    }

    /// Returns everything that was sent, with the heads of the requests.
    pub(crate) fn heads_and_bodies(&self) -> (String, String) {
        let requests = self.requests.lock().unwrap();
        let bodies = requests.iter().map(|it| String::from_utf8_lossy(&it.body).into_owned());
        (requests.iter().map(|it| it.head.as_str()).collect(), bodies.collect())
    }
}

/// Answers the requests of a connection.
fn serve(mut call: TcpStream, answers: Answers, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(call.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            line.to_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
        });
        let mut body = vec![0; length.unwrap()];
        reader.read_exact(&mut body).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        seen.lock().unwrap().push(Request { path, head: head.clone(), body });
        let protobuf = "application/x-protobuf";
        let (status, kind, answer) = match answers {
            Answers::Ok => (200, protobuf, Vec::new()),
            Answers::RejectsTwo if head.contains("/v1/traces") => (200, protobuf, rejection()),
            Answers::RejectsTwo => (200, protobuf, Vec::new()),
            Answers::Status(status) => (status, "text/plain", b"no".to_vec()),
            Answers::Page => (200, "text/html; charset=utf-8", b"<html>Welcome</html>".to_vec()),
            Answers::Never => continue,
        };
        let length = answer.len();
        let head =
            format!("HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {length}");
        // The program may have ended.
        let answer = [format!("{head}\r\n\r\n").into_bytes(), answer].concat();
        drop(call.write_all(&answer));
    }
}

fn rejection() -> Vec<u8> {
    let error_message = "the quota is used up".to_owned();
    let partly = ExportTracePartialSuccess { rejected_spans: 2, error_message };
    ExportTraceServiceResponse { partial_success: Some(partly) }.encode_to_vec()
}

/// Returns the attributes, with lists and numbers as texts.
pub(crate) fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |it: &KeyValue| text(it.value.as_ref().unwrap());
    attributes.iter().map(|it| (it.key.clone(), value(it))).collect()
}

fn text(value: &AnyValue) -> String {
    match value.value.as_ref().unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(it) => it.to_string(),
        Value::IntValue(it) => format!("{it}i"),
        Value::DoubleValue(it) => format!("{it}f"),
        Value::ArrayValue(list) => {
            format!("[{}]", list.values.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        other => panic!("no attribute has {other:?}"),
    }
}

/// A series of a histogram.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) bounds: Vec<f64>,
}

/// Returns the series of a histogram.
pub(crate) fn series(metrics: &[Metric], name: &str) -> Vec<Series> {
    let metric = metrics.iter().find(|it| it.name == name).unwrap();
    let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
    let points = histogram.data_points.iter().map(|point| Series {
        attributes: attributes(&point.attributes),
        count: point.count,
        sum: point.sum.unwrap(),
        bounds: point.explicit_bounds.clone(),
    });
    points.collect()
}
