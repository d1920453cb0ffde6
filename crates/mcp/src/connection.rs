//! A server that runs: its process, and the requests to it.
//!
//! Every request has a time limit and every message a size limit, so a server that hangs or floods harms only the calls to
//! it. When a connection is dropped, all processes of the server are killed.

use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use graphrun_guard::redact::redact;
use graphrun_sandbox::{HostCommand, HostProcess};
use graphrun_workflow::{HostAccess, LockedTool, McpServer};
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, ClientConfig, Implementation, PaginatedRequestParams,
        ReadResourceRequestParams,
    },
    service::{
        ClientInitializeError, NotificationContext, RunningService, ServiceError, serve_client,
    },
    transport::async_rw::AsyncRwTransport,
};
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use crate::McpError;

/// The longest message of a server in bytes. A longer one is dropped, so that its call runs out of time.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The most bytes of the standard error of a server that are kept: the last ones.
const STDERR_BYTES_MAX: usize = 2_000;
/// How long a server may take to end after its input has ended.
const STOP_TIME: Duration = Duration::from_secs(2);
/// The most pages of a list.
const PAGES_MAX: usize = 100;
/// The most entries of a list.
pub(super) const ENTRIES_MAX: usize = 1_000;

/// A running server.
#[derive(Debug)]
pub(super) struct Connection {
    server: String,
    time: Duration,
    service: RunningService<RoleClient, Client>,
    process: HostProcess,
    stderr: LastOutput,
    /// Whether later calls need another connection.
    is_stale: Arc<AtomicBool>,
    readers: JoinSet<()>,
}

/// The last output of a server on its standard error, and whether it is complete.
#[derive(Clone, Debug)]
struct LastOutput {
    kept: Arc<Mutex<Vec<u8>>>,
    is_complete: watch::Receiver<bool>,
}

/// What graphrun answers to a server: nothing but its name. It offers neither its models nor its files.
#[derive(Debug)]
struct Client {
    is_stale: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.client_info = Implementation::new("graphrun", env!("CARGO_PKG_VERSION"));
        info
    }

    /// The next call starts the server again, and compares its tools with the lock file.
    fn on_tool_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.is_stale.store(true, Ordering::Relaxed);
        std::future::ready(())
    }
}

impl Connection {
    /// Starts a server in a folder, and introduces graphrun to it.
    pub(super) async fn open(
        server: &McpServer,
        access: &HostAccess,
        folder: Option<PathBuf>,
    ) -> Result<Self, McpError> {
        let name = || server.name.clone();
        let variables = access.variables_of(&server.host);
        let command = HostCommand {
            argv: server.command.clone(),
            folder,
            env: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..HostCommand::default()
        };
        let started = command.start();
        let mut process = started.map_err(|source| McpError::Start { server: name(), source })?;
        let streams = process.take_streams();
        let (stdin, stdout, stderr) = streams.expect("the streams of a new process are not taken");
        let (kept, mut readers) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        let (complete, is_complete) = watch::channel(false);
        readers.spawn(keep_end(stderr, Arc::clone(&kept), complete));
        let stderr = LastOutput { kept, is_complete };
        let is_stale = Arc::new(AtomicBool::new(false));
        let client = Client { is_stale: Arc::clone(&is_stale) };
        let transport = AsyncRwTransport::new_client(stdout, stdin);
        let transport = transport.with_max_line_length(MESSAGE_BYTES_MAX);
        let served = timeout(server.time, serve_client(client, transport)).await;
        let Ok(served) = served else {
            return Err(McpError::TimedOut { server: name(), time: server.time });
        };
        let service = match served {
            Ok(service) => service,
            Err(ClientInitializeError::JsonRpcError(error)) => {
                return Err(McpError::Protocol { server: name(), message: plain(&error.message) });
            }
            Err(_) => return Err(McpError::Ended { server: name(), stderr: stderr.text().await }),
        };
        let (server, time) = (server.name.clone(), server.time);
        Ok(Self { server, time, service, process, stderr, is_stale, readers })
    }

    /// Returns whether later calls can use it.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_stale.load(Ordering::Relaxed) && !self.service.is_closed()
    }

    /// Returns whether the server says that it has something: `resources` or `prompts`.
    pub(super) fn has(&self, capability: &str) -> bool {
        let info = self.service.peer().peer_info().and_then(|it| serde_json::to_value(&*it).ok());
        info.is_some_and(|it| it["capabilities"].get(capability).is_some_and(|it| !it.is_null()))
    }

    /// Lists the tools, each with its name.
    pub(super) async fn tools(&self) -> Result<Vec<(String, LockedTool)>, McpError> {
        let peer = self.service.peer();
        let listed = self.list("tools", |page| peer.list_tools(page)).await?;
        let tool = |mut it: Value| {
            let text = |it: &Value| it.as_str().map(plain).unwrap_or_default();
            let output = it.get_mut("outputSchema").map(Value::take);
            let (name, about, input) =
                (text(&it["name"]), text(&it["description"]), it["inputSchema"].take());
            (name, LockedTool { about, input, output })
        };
        Ok(listed.into_iter().map(tool).collect())
    }

    /// Lists the resources, as the server describes them.
    pub(super) async fn resources(&self) -> Result<Vec<Value>, McpError> {
        let peer = self.service.peer();
        self.list("resources", |page| peer.list_resources(page)).await
    }

    /// Lists the prompts, as the server describes them.
    pub(super) async fn prompts(&self) -> Result<Vec<Value>, McpError> {
        let peer = self.service.peer();
        self.list("prompts", |page| peer.list_prompts(page)).await
    }

    /// Calls a tool, and returns the result as the protocol has it.
    pub(super) async fn call(&self, tool: &str, input: Value) -> Result<Value, McpError> {
        let input = match input {
            Value::Object(input) => input,
            _ => Map::new(),
        };
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        let peer = self.service.peer();
        let result = self.within_time(peer.call_tool(params)).await?;
        Ok(serde_json::to_value(result).unwrap_or_default())
    }

    /// Reads a resource, and returns it as the protocol has it.
    pub(super) async fn read_resource(&self, uri: &str) -> Result<Value, McpError> {
        let params = ReadResourceRequestParams::new(uri);
        let peer = self.service.peer();
        let result = self.within_time(peer.read_resource(params)).await?;
        Ok(serde_json::to_value(result).unwrap_or_default())
    }

    /// Ends the server: it is asked first, by the end of its input.
    pub(super) async fn close(mut self) {
        let _ = self.service.close_with_timeout(STOP_TIME).await;
        self.process.stop(STOP_TIME).await;
        self.readers.abort_all();
    }

    /// Lists all pages of something.
    async fn list<'p, P, F>(
        &'p self,
        what: &'static str,
        page: impl Fn(Option<PaginatedRequestParams>) -> F,
    ) -> Result<Vec<Value>, McpError>
    where
        P: serde::Serialize,
        F: Future<Output = Result<P, ServiceError>> + 'p,
    {
        let (mut all, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let listed = self.within_time(page(Some(params))).await?;
            let mut listed = serde_json::to_value(listed).unwrap_or_default();
            if let Some(Value::Array(items)) = listed.get_mut(what).map(Value::take) {
                all.extend(items);
            }
            cursor = listed["nextCursor"].as_str().map(str::to_owned);
            if all.len() > ENTRIES_MAX {
                break;
            }
            if cursor.is_none() {
                return Ok(all);
            }
        }
        Err(McpError::TooMany { server: self.server.clone(), what, most: ENTRIES_MAX })
    }

    /// Waits for a reply. A server that does not answer, or that has ended, is not used again.
    async fn within_time<T>(
        &self,
        reply: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, McpError> {
        let server = || self.server.clone();
        match timeout(self.time, reply).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(McpError::Protocol { server: server(), message: plain(&error.message) })
            }
            Ok(Err(ServiceError::TransportClosed | ServiceError::TransportSend(_))) => {
                self.is_stale.store(true, Ordering::Relaxed);
                Err(McpError::Ended { server: server(), stderr: self.stderr.text().await })
            }
            Ok(Err(error)) => {
                Err(McpError::Protocol { server: server(), message: plain(&error.to_string()) })
            }
            Err(_) => {
                self.is_stale.store(true, Ordering::Relaxed);
                Err(McpError::TimedOut { server: server(), time: self.time })
            }
        }
    }
}

impl LastOutput {
    /// Returns the output for messages. The server explains its end there, and this may arrive after the end.
    async fn text(&self) -> String {
        let mut is_complete = self.is_complete.clone();
        let _ = timeout(STOP_TIME, is_complete.wait_for(|it| *it)).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        plain(String::from_utf8_lossy(&kept).trim())
    }
}

/// Reads a stream to its end and keeps its last bytes.
async fn keep_end(
    mut stream: impl AsyncRead + Unpin,
    kept: Arc<Mutex<Vec<u8>>>,
    complete: watch::Sender<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..count]);
        let more = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..more);
    }
    complete.send_replace(true);
}

/// Returns a text of a server without keys and control characters.
fn plain(text: &str) -> String {
    let text = redact(text);
    text.chars().filter(|it| !it.is_control() || matches!(it, '\n' | '\t')).collect()
}
