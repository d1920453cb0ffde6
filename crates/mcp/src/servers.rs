//! The servers of a process, each started when one of its tools is called for the first time.

use std::{
    collections::BTreeMap,
    mem,
    path::Path,
    sync::{Arc, LazyLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use graphrun_sandbox::clean_text;
use graphrun_workflow::{
    LockedServer, LockedTool, McpPlace, McpServer,
    tool::{McpCaller, ServerRequest, ServerTool, ToolContext, ToolError},
};
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::Mutex, time::timeout};
use tokio_util::task::TaskTracker;

use crate::{
    McpError, ServerAccess,
    connection::Connection,
    content::{of_call, of_list, of_prompt, of_resource},
};

/// The running servers of a process: one for each declaration and each folder in which nodes call it.
#[derive(Debug, Default)]
pub struct Servers {
    access: ServerAccess,
    open: std::sync::Mutex<BTreeMap<String, Slot>>,
}

/// The requests that end the sessions of dropped servers. They belong to the process, because the servers of a run are
/// dropped with its graph, wherever that happens.
static ENDING: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);
/// The longest wait for them; a little more than one of them takes.
const ENDING_TIME: Duration = Duration::from_secs(3);

/// Waits for a short time until the sessions of all dropped servers have ended. A program calls it before it ends its
/// runtime; without it, the servers keep the sessions until they forget them.
pub async fn end_sessions() {
    ENDING.close();
    let _ = timeout(ENDING_TIME, ENDING.wait()).await;
}

/// The connection to a server, if it runs. Calls wait here while it starts.
type Slot = Arc<Mutex<Option<Arc<Connection>>>>;

impl Servers {
    /// Makes a holder of servers, which start if the operator allows them.
    pub fn new(access: ServerAccess) -> Self {
        Self { access, open: std::sync::Mutex::default() }
    }

    /// Returns a connection to a server whose tools are those of the lock file.
    async fn connect(
        &self,
        server: &McpServer,
        folder: Option<&Arc<Path>>,
    ) -> Result<Arc<Connection>, McpError> {
        // Only a command on a host works in the folder of a node.
        let folder = folder.filter(|_| matches!(server.place, McpPlace::Host { .. }));
        let key = format!("{:?}", (&server.name, &server.place, folder));
        let slot = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(open.entry(key).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|it| it.is_usable()) {
            // The server keeps its process, and with it its own state.
            if connection.has_unchecked_changes() {
                check_lock(server, connection).await?;
            }
            return Ok(Arc::clone(connection));
        }
        // Calls that are under way keep the old connection until they end.
        *slot = None;
        self.access.check(server)?;
        let folder = folder.map(|it| it.to_path_buf());
        let connection = Connection::open(server, &self.access, folder).await?;
        check_lock(server, &connection).await?;
        let connection = Arc::new(connection);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

/// The sessions over HTTP end in the background. Programs are killed with their connection.
impl Drop for Servers {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let open = mem::take(self.open.get_mut().unwrap_or_else(PoisonError::into_inner));
        for slot in open.into_values().filter_map(Arc::into_inner) {
            let connection = slot.into_inner().and_then(Arc::into_inner);
            if let Some(connection) = connection.filter(Connection::is_over_http) {
                ENDING.spawn_on(connection.close(), &runtime);
            }
        }
    }
}

/// Checks that the server has the locked tools and prompts, with the same descriptions and types.
async fn check_lock(server: &McpServer, connection: &Connection) -> Result<(), McpError> {
    let LockedServer { tools, prompts, .. } = &server.locked;
    // A change that the server reports meanwhile, and one whose check fails or is cancelled, is checked by the next call.
    let changes = connection.changes();
    check_same(&server.name, "tool", tools, &connection.tools().await?)?;
    if !prompts.is_empty() {
        check_same(&server.name, "prompt", prompts, &connection.prompts().await?)?;
    }
    connection.note_checked(changes);
    Ok(())
}

fn check_same(
    server: &str,
    part: &'static str,
    locked: &BTreeMap<String, LockedTool>,
    found: &[(String, LockedTool)],
) -> Result<(), McpError> {
    let is_same = |(name, locked): &(&String, &LockedTool)| {
        // A second one of the same name could be the one that is called.
        let of_name = found.iter().filter(|(found, _)| found == *name);
        of_name.map(|(_, tool)| tool).eq([*locked])
    };
    match locked.iter().find(|it| !is_same(it)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(McpError::Changed { server: server.to_owned(), part, name: name.clone() })
        }
    }
}

#[async_trait]
impl McpCaller for Servers {
    async fn call(
        &self,
        tool: &ServerTool,
        input: Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let ServerTool { server, tool, request } = tool;
        let uri = input["uri"].as_str().unwrap_or_default();
        if *request == ServerRequest::ReadResource && !server.allows_resource(uri) {
            let server = server.name.clone();
            let uri = clean_text(uri);
            return Err(McpError::NotAllowed { server, uri }.into());
        }
        let connection = self.connect(server, ctx.folder.as_ref()).await?;
        Ok(match request {
            ServerRequest::ReadResource => of_resource(&connection.read_resource(uri).await?),
            ServerRequest::ListResources => {
                let resources = connection.resources().await?;
                let resources = of_list(&resources, "uri", |it| server.allows_resource(it));
                let templates = connection.resource_templates().await?;
                let templates = of_list(&templates, "uriTemplate", |it| server.allows_template(it));
                json!({"resources": resources, "templates": templates})
            }
            ServerRequest::GetPrompt => of_prompt(&connection.get_prompt(tool, input).await?),
            ServerRequest::CallTool => {
                let locked = server.locked.tools.get(tool);
                let is_structured = locked.is_some_and(|it| it.output.is_some());
                of_call(connection.call(tool, input).await?, is_structured)?
            }
        })
    }
}
