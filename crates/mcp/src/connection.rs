//! A connection to a server, and the requests over it.
//!
//! Every request has a time limit and every message a size limit, so a server that hangs or floods harms only the calls to
//! it. When a connection is dropped, all processes that graphrun has started for the server are killed.

use std::{
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use graphrun_sandbox::clean_text;
use graphrun_workflow::{HostUse, LockedTool, McpPlace, McpServer};
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, ClientConfig, GetPromptRequestParams, Implementation,
        PaginatedRequestParams, ReadResourceRequestParams,
    },
    service::{
        ClientInitializeError, NotificationContext, RunningService, ServiceError, serve_client,
    },
    transport::async_rw::AsyncRwTransport,
};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::{
    McpError, ServerAccess,
    lines::{LongMessages, MeasuredLines},
    program::{End, Program, STOP_TIME, Streams},
    web,
};

/// The longest message of a server in bytes. A longer one is dropped, and its call fails.
pub(super) const MESSAGE_BYTES_MAX: usize = 8 << 20;
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
    /// The program of a server that graphrun has started.
    program: Option<Program>,
    /// The messages of the program that were too long.
    long: LongMessages,
    /// The number of requests without an answer.
    open_requests: AtomicU64,
    /// Whether later calls need another connection.
    is_stale: AtomicBool,
    /// The number of changes of its tools and prompts that the server has reported.
    changes: Arc<AtomicU64>,
    /// The number of those after which its tools and prompts were the ones of the lock file.
    changes_checked: AtomicU64,
}

/// The introduction to a server.
type Serving = Pin<
    Box<
        dyn Future<Output = Result<RunningService<RoleClient, Client>, ClientInitializeError>>
            + Send,
    >,
>;

/// What graphrun answers to a server: nothing but its name. It offers neither its models nor its files.
#[derive(Debug)]
struct Client {
    changes: Arc<AtomicU64>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.client_info = Implementation::new("graphrun", env!("CARGO_PKG_VERSION"));
        info
    }

    /// Before the next call, the tools and prompts are compared with the lock file.
    fn on_tool_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.changes.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    }

    fn on_prompt_list_changed(
        &self,
        context: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.on_tool_list_changed(context)
    }
}

impl Connection {
    /// Starts a server, on a host in a folder, or connects to it, and introduces graphrun to it.
    pub(super) async fn open(
        server: &McpServer,
        access: &ServerAccess,
        folder: Option<PathBuf>,
    ) -> Result<Self, McpError> {
        let name = server.name.clone();
        let time = server.time;
        let changes = Arc::new(AtomicU64::new(0));
        let client = Client { changes: Arc::clone(&changes) };
        let long = LongMessages::default();
        let (program, serving) = match &server.place {
            McpPlace::Host { command, host } => {
                let used = HostUse { host, shape: command };
                serve_program(client, Program::on_host(server, used, access, folder)?, &long)
            }
            McpPlace::Sandbox { sandbox, scripts, .. } => {
                let started = Program::in_sandbox(server, sandbox, scripts, access).await?;
                serve_program(client, started, &long)
            }
            McpPlace::Web(request) => {
                let transport = web::transport(server, request, access).await?;
                let serving: Serving = Box::pin(serve_client(client, transport));
                (None, serving)
            }
        };
        let Ok(served) = timeout(time, serving).await else {
            return Err(McpError::TimedOut { server: name, time });
        };
        let end = program.as_ref().map(Program::end);
        match served {
            Ok(service) => {
                let is_stale = AtomicBool::new(false);
                Ok(Self {
                    server: name,
                    time,
                    service,
                    program,
                    long,
                    open_requests: AtomicU64::new(0),
                    is_stale,
                    changes,
                    changes_checked: AtomicU64::new(0),
                })
            }
            Err(error) => Err(error_of_start(&name, error, end).await),
        }
    }

    /// Returns whether the server is elsewhere.
    pub(super) fn is_over_http(&self) -> bool {
        self.program.is_none()
    }

    /// Returns whether later calls can use it.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_stale.load(Ordering::Relaxed) && !self.service.is_closed()
    }

    /// Returns the number of changes that the server has reported.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns whether its tools and prompts have to be compared with the lock file again.
    pub(super) fn has_unchecked_changes(&self) -> bool {
        self.changes() != self.changes_checked.load(Ordering::Relaxed)
    }

    /// Notes that after this number of changes its tools and prompts were the ones of the lock file.
    pub(super) fn note_checked(&self, changes: u64) {
        self.changes_checked.store(changes, Ordering::Relaxed);
    }

    /// Returns whether the server says that it has something: `resources` or `prompts`.
    pub(super) fn has(&self, capability: &str) -> bool {
        let info = self.service.peer().peer_info().and_then(|it| serde_json::to_value(&*it).ok());
        info.is_some_and(|info| {
            info["capabilities"].get(capability).is_some_and(|it| !it.is_null())
        })
    }

    /// Lists the tools, each with its name.
    pub(super) async fn tools(&self) -> Result<Vec<(String, LockedTool)>, McpError> {
        let peer = self.service.peer();
        let listed = self.list("tools", |page| peer.list_tools(page)).await?;
        let tool = |mut tool: Value| {
            let text = |it: &Value| it.as_str().map(clean_text).unwrap_or_default();
            let output = tool.get_mut("outputSchema").map(Value::take);
            let name = name_of(&tool);
            let (about, input) = (text(&tool["description"]), tool["inputSchema"].take());
            (name, LockedTool { about, input, output })
        };
        Ok(listed.into_iter().map(tool).collect())
    }

    /// Lists the resources, as the server describes them.
    pub(super) async fn resources(&self) -> Result<Vec<Value>, McpError> {
        let peer = self.service.peer();
        self.list("resources", |page| peer.list_resources(page)).await
    }

    /// Lists the templates of URIs, as the server describes them; none of a server without this request.
    pub(super) async fn resource_templates(&self) -> Result<Vec<Value>, McpError> {
        let peer = self.service.peer();
        let listed =
            self.list("resourceTemplates", |page| peer.list_resource_templates(page)).await;
        match listed {
            Err(McpError::Protocol { .. }) => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Lists the prompts, each with its name. The arguments of a prompt are texts.
    pub(super) async fn prompts(&self) -> Result<Vec<(String, LockedTool)>, McpError> {
        let peer = self.service.peer();
        let listed = self.list("prompts", |page| peer.list_prompts(page)).await?;
        Ok(listed.iter().map(prompt).collect())
    }

    /// Fills in a prompt, and returns it as the protocol has it.
    pub(super) async fn get_prompt(&self, prompt: &str, input: Value) -> Result<Value, McpError> {
        let params = GetPromptRequestParams::new(prompt).with_arguments(arguments(input));
        let peer = self.service.peer();
        let result = self.within_time(peer.get_prompt(params)).await?;
        Ok(serde_json::to_value(result).unwrap_or_default())
    }

    /// Calls a tool, and returns the result as the protocol has it.
    pub(super) async fn call(&self, tool: &str, input: Value) -> Result<Value, McpError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments(input));
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

    /// Ends the server: it is asked first, by the end of its input. Over HTTP, the session ends with a request.
    pub(super) async fn close(mut self) {
        let _ = self.service.close_with_timeout(STOP_TIME).await;
        if let Some(program) = self.program {
            program.stop().await;
        }
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
        let mut all = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let listed = self.within_time(page(Some(params))).await?;
            let mut listed = serde_json::to_value(listed).unwrap_or_default();
            if let Some(Value::Array(items)) = listed.get_mut(what).map(Value::take) {
                all.extend(items);
            }
            if all.len() > ENTRIES_MAX {
                return Err(McpError::TooMany {
                    server: self.server.clone(),
                    what,
                    most: ENTRIES_MAX,
                });
            }
            // Some servers write an empty cursor behind the last page.
            cursor = listed["nextCursor"].as_str().filter(|it| !it.is_empty()).map(str::to_owned);
            if cursor.is_none() {
                return Ok(all);
            }
        }
        Err(McpError::TooManyPages { server: self.server.clone(), what, most: PAGES_MAX })
    }

    /// Waits for a reply, or until a message that was too long must have been the reply: no other request is open.
    async fn reply_or_dropped<T>(
        &self,
        reply: impl Future<Output = Result<T, ServiceError>>,
    ) -> Option<Result<T, ServiceError>> {
        let _open = OpenRequest::of(&self.open_requests);
        let mut seen = self.long.count();
        tokio::pin!(reply);
        loop {
            tokio::select! {
                biased;
                reply = &mut reply => return Some(reply),
                () = self.long.more_than(seen) => {}
            }
            if self.open_requests.load(Ordering::Relaxed) == 1 {
                return None;
            }
            seen = self.long.count();
        }
    }

    /// Waits for a reply. A server that does not answer, or that has ended, is not used again.
    async fn within_time<T>(
        &self,
        reply: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, McpError> {
        let server = || self.server.clone();
        let before = self.long.count();
        let replied = match timeout(self.time, self.reply_or_dropped(reply)).await {
            Ok(None) => return Err(McpError::TooLarge { server: server() }),
            // One of several open requests has lost its answer.
            Err(_) if self.long.count() > before => {
                return Err(McpError::TooLarge { server: server() });
            }
            Ok(Some(replied)) => Ok(replied),
            Err(elapsed) => Err(elapsed),
        };
        match replied {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(McpError::Protocol { server: server(), message: clean_text(&error.message) })
            }
            Ok(Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_)))) => {
                self.is_stale.store(true, Ordering::Relaxed);
                let end = self.program.as_ref().map(Program::end);
                match web::error_of(&self.server, &error) {
                    Some(error) => Err(error),
                    None => Err(ended(&self.server, end).await),
                }
            }
            Ok(Err(ServiceError::UnexpectedResponse)) => Err(McpError::Form { server: server() }),
            Ok(Err(error)) => Err(McpError::Protocol {
                server: server(),
                message: clean_text(&error.to_string()),
            }),
            Err(_) => {
                self.is_stale.store(true, Ordering::Relaxed);
                Err(McpError::TimedOut { server: server(), time: self.time })
            }
        }
    }
}

/// A request without an answer.
struct OpenRequest<'a>(&'a AtomicU64);

impl<'a> OpenRequest<'a> {
    fn of(open: &'a AtomicU64) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the name of a tool, a prompt or an argument as the server knows it: a name with odd characters is refused, and never
/// another one.
fn name_of(listed: &Value) -> String {
    listed["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns the name of a prompt, and the prompt as a tool.
fn prompt(listed: &Value) -> (String, LockedTool) {
    let text = |it: &Value| it.as_str().map(clean_text).unwrap_or_default();
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in listed["arguments"].as_array().into_iter().flatten() {
        let name = name_of(argument);
        if argument["required"] == Value::Bool(true) {
            required.push(Value::from(name.clone()));
        }
        let mut schema = json!({"type": "string"});
        let about = text(&argument["description"]);
        if !about.is_empty() {
            schema["description"] = about.into();
        }
        properties.insert(name, schema);
    }
    let input = json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    });
    let about = text(&listed["description"]);
    (name_of(listed), LockedTool { about, input, output: None })
}

/// Returns the arguments of a call.
fn arguments(input: Value) -> Map<String, Value> {
    match input {
        Value::Object(input) => input,
        _ => Map::new(),
    }
}

fn serve_program(
    client: Client,
    (program, (stdout, stdin)): (Program, Streams),
    long: &LongMessages,
) -> (Option<Program>, Serving) {
    let stdout = MeasuredLines::new(stdout, MESSAGE_BYTES_MAX, long.clone());
    let transport = AsyncRwTransport::new_client(stdout, stdin);
    let transport = transport.with_max_line_length(MESSAGE_BYTES_MAX);
    (Some(program), Box::pin(serve_client(client, transport)))
}

/// Returns the error of a server that did not introduce itself.
async fn error_of_start(server: &str, error: ClientInitializeError, end: Option<End>) -> McpError {
    let name = || server.to_owned();
    let of_web = match &error {
        ClientInitializeError::TransportError { error, .. } => {
            web::error_of(server, error.error.as_ref())
        }
        _ => None,
    };
    if let Some(error) = of_web {
        return error;
    }
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            McpError::Protocol { server: name(), message: clean_text(&error.message) }
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            Box::pin(error_of_start(server, *fallback, end)).await
        }
        _ if end.is_some() => ended(server, end).await,
        error => McpError::Invalid { server: name(), reason: clean_text(&error.to_string()) },
    }
}

/// Returns the error of a server that has ended, or that has closed its streams.
async fn ended(server: &str, end: Option<End>) -> McpError {
    let how = match end {
        Some(end) => end.text().await,
        None => " its answer before the result, or sent an event of more than 8 MiB".to_owned(),
    };
    McpError::Ended { server: server.to_owned(), how }
}
