//! What the nodes of a workflow need of this machine and of its operator.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{
    costs,
    models::{self, ConnectedModels},
};
use crate::{
    cli::{
        allow::{hosts, network, web},
        error::CliError,
        exit::Exit,
        settings::run_settings::Settings,
    },
    id::NodeName,
    sandbox::Sandbox,
    tool::{ToolAction, WebAccess},
    workflow::{
        HostAccess, HostUse, McpServer, NodeDefinition, Program, SandboxSettings, Workflow,
    },
};

/// The needs of a workflow. A recording answers in place of servers and programs, so with one they are not needed.
#[derive(Debug)]
pub(crate) struct Needs<'w> {
    path: &'w Path,
    workflow: &'w Workflow,
    settings: &'w Settings,
    nodes: BTreeMap<NodeName, &'w NodeDefinition>,
    /// Whether the tools of agents are called. A recording has the results of their calls.
    is_live: bool,
    programs: Vec<&'w Program>,
    servers: Vec<Arc<McpServer>>,
}

impl<'w> Needs<'w> {
    pub(crate) fn of(path: &'w Path, workflow: &'w Workflow, settings: &'w Settings) -> Self {
        let nodes = workflow.all_nodes();
        let is_live = settings.options.replay.is_none();
        let programs = nodes.values().flat_map(|it| it.settings.programs());
        let programs = programs.filter(|_| is_live).collect();
        let mut servers = servers(nodes.values().copied());
        if !is_live {
            servers.clear();
        }
        Self { path, workflow, settings, nodes, is_live, programs, servers }
    }

    /// Checks that there is a sandbox, if a node needs one.
    ///
    /// # Errors
    ///
    /// Fails when none can be used.
    pub(crate) fn check_sandbox(&self) -> Result<(), CliError> {
        if self.sandboxes().is_empty() {
            return Ok(());
        }
        Sandbox::probe().map(|_| ()).map_err(|error| {
            let help = error.hint();
            let message =
                "the workflow needs a sandbox, and no usable one was found on this machine";
            let refused = CliError::new(Exit::Unusable, message).because(error);
            help.into_iter().fold(refused, CliError::with_help)
        })
    }

    /// Checks that the operator allows the commands on this machine.
    ///
    /// # Errors
    ///
    /// Fails with each that is not allowed, or that would ask where no person can be asked.
    pub(crate) fn check_hosts(&self) -> Result<(), CliError> {
        let access = self.host_access();
        hosts::check(&access, self.commands().into_iter(), self.path)?;
        hosts::check_servers(&access, self.servers.iter().map(AsRef::as_ref), self.path)
    }

    /// Checks that the operator allows the requests of tools and servers.
    ///
    /// # Errors
    ///
    /// Fails with each that is not allowed.
    pub(crate) fn check_requests(&self) -> Result<(), CliError> {
        let tools = self.calling_nodes().flat_map(|it| it.settings.declared_tools());
        let of_servers = web::of_servers(self.servers.iter().map(AsRef::as_ref));
        web::check(&self.web_access(), web::of_tools(tools).chain(of_servers), self.path)
    }

    /// Returns the nodes that call their tools.
    fn calling_nodes(&self) -> impl Iterator<Item = &NodeDefinition> {
        let is_replayed = |it: &NodeDefinition| !self.is_live && it.settings.models().is_some();
        self.nodes.values().copied().filter(move |it| !is_replayed(it))
    }

    /// Checks that the operator allows the hosts that sandboxes reach, and that the secrets of programs are set.
    ///
    /// # Errors
    ///
    /// Fails with each that is not allowed or not set.
    pub(crate) fn check_network(&self) -> Result<(), CliError> {
        let network = network::access(&self.settings.options);
        network::check(&network, &self.sandboxes(), &self.programs, self.path)?;
        network::check_secrets(&self.host_access(), &self.programs, self.path)
    }

    /// Connects the models of its agents and of its memory.
    ///
    /// # Errors
    ///
    /// Fails when an agent has no usable model, when a model for embeddings cannot be used, or a cost limit cannot be enforced.
    pub(crate) fn connect_models(&self) -> Result<ConnectedModels, CliError> {
        let agents = self.nodes.iter();
        let agents = agents.filter_map(|(name, it)| Some((name, it.settings.models()?.models)));
        let embeddings = self.nodes.iter();
        let embeddings =
            embeddings.filter_map(|(name, it)| Some((name, it.settings.embeddings()?.models)));
        let programs = self.programs.iter().copied();
        let connected = models::connect(agents, embeddings, programs, self.settings)?;
        costs::check(self.workflow, self.settings, &connected)?;
        Ok(connected)
    }

    /// Returns the sandboxes of its nodes, programs and servers.
    pub(crate) fn sandboxes(&self) -> Vec<&SandboxSettings> {
        let of_nodes = self.calling_nodes().flat_map(|it| it.settings.sandboxes());
        let of_programs = self.programs.iter().filter_map(|it| it.sandbox());
        let of_servers = self.servers.iter().filter_map(|it| it.sandbox());
        of_nodes.chain(of_programs.map(|it| &it.settings)).chain(of_servers).collect()
    }

    /// Returns the commands on this machine.
    pub(crate) fn commands(&self) -> Vec<HostUse<'_>> {
        let of_nodes = self.nodes.values().filter_map(|it| it.settings.host());
        let of_servers = self.servers.iter().filter_map(|it| it.host_use());
        let of_programs = self.programs.iter().filter_map(|it| it.host_use());
        of_nodes.chain(of_servers).chain(of_programs).collect()
    }

    /// Returns the requests of tools and servers.
    pub(crate) fn requests(&self) -> Vec<web::Request<'_>> {
        let tools = self.nodes.values().flat_map(|it| it.settings.declared_tools());
        let of_servers = web::of_servers(self.servers.iter().map(AsRef::as_ref));
        web::of_tools(tools).chain(of_servers).collect()
    }

    /// What the operator allows on this machine.
    pub(crate) fn host_access(&self) -> HostAccess {
        let of_hosts = self.commands().into_iter().flat_map(|it| &it.host.secrets);
        let of_sandboxes = self.programs.iter().filter_map(|it| it.sandbox());
        let of_sandboxes = of_sandboxes.flat_map(|it| &it.secrets);
        hosts::access(self.settings, of_hosts.chain(of_sandboxes))
    }

    /// Returns the hosts to which its tools and servers may send requests.
    pub(crate) fn web_access(&self) -> WebAccess {
        web::access(self.settings, self.requests().into_iter())
    }
}

/// Returns the MCP servers whose tools some nodes may call, each once.
pub(crate) fn servers<'a>(nodes: impl Iterator<Item = &'a NodeDefinition>) -> Vec<Arc<McpServer>> {
    let mut servers: Vec<Arc<McpServer>> = Vec::new();
    for tool in nodes.flat_map(|it| it.settings.declared_tools()) {
        if let ToolAction::Server(tool) = &tool.action
            && servers.iter().all(|it| **it != *tool.server)
        {
            servers.push(Arc::clone(&tool.server));
        }
    }
    servers
}
