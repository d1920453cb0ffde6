//! The servers of a process, each started when one of its tools is called for the first time.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, PoisonError},
};

use async_trait::async_trait;
use graphrun_workflow::{
    McpPlace, McpServer,
    tool::{McpCaller, ServerTool, ToolContext, ToolError},
};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    McpError, ServerAccess,
    connection::Connection,
    content::{of_call, of_resource},
};

/// The running servers of a process: one for each declaration and each folder in which nodes call it.
#[derive(Debug, Default)]
pub struct Servers {
    access: ServerAccess,
    open: std::sync::Mutex<BTreeMap<String, Slot>>,
}

/// The connection to a server, if it runs. Calls wait here while it starts.
type Slot = Arc<Mutex<Option<Arc<Connection>>>>;

impl Servers {
    /// Makes a holder of servers, which start if the operator allows them.
    pub fn new(access: ServerAccess) -> Self {
        Self { access, ..Self::default() }
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
            return Ok(Arc::clone(connection));
        }
        // Calls that are under way keep the old connection until they end.
        *slot = None;
        self.access.check(server)?;
        let folder = folder.map(|it| it.to_path_buf());
        let connection = Connection::open(server, &self.access, folder).await?;
        check_tools(server, &connection).await?;
        let connection = Arc::new(connection);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

/// Checks that the server has the locked tools, with the same descriptions and types.
async fn check_tools(server: &McpServer, connection: &Connection) -> Result<(), McpError> {
    let tools: BTreeMap<_, _> = connection.tools().await?.into_iter().collect();
    let changed =
        server.locked.tools.iter().find(|(name, locked)| tools.get(*name) != Some(*locked));
    match changed {
        None => Ok(()),
        Some((tool, _)) => {
            Err(McpError::Changed { server: server.name.clone(), tool: tool.clone() })
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
        let ServerTool { server, tool, reads_resource } = tool;
        let connection = self.connect(server, ctx.folder.as_ref()).await?;
        if *reads_resource {
            let uri = input["uri"].as_str().unwrap_or_default();
            return Ok(of_resource(&connection.read_resource(uri).await?));
        }
        let is_structured = server.locked.tools.get(tool).is_some_and(|it| it.output.is_some());
        let result = connection.call(tool, input).await?;
        Ok(of_call(result, is_structured)?)
    }
}
