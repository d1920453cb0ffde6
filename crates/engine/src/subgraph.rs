//! A graph as a node of another one.

use std::fmt;

use async_trait::async_trait;
use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{
        Argument, Command, IntoCommand, Node, NodeContext, NodeDescription, NodeError,
        describe_types,
    },
    state::{State, Update},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{IntoInput, NestedGraph};

type MakeInput = dyn Fn(&NodeContext) -> Result<Update, NodeError> + Send + Sync;
type MakeWrites = dyn Fn(&State) -> Result<Command, NodeError> + Send + Sync;

/// A graph as a node of another one; see [`subgraph`].
pub struct Subgraph {
    nested: NestedGraph,
    input: Box<MakeInput>,
    output: Box<MakeWrites>,
    description: NodeDescription,
}

/// Makes a node of a graph. `input` makes the input of the graph from what the node reads: a struct of channels, or the
/// [`Item`](graphrun_core::graph::Item) of a dispatched task. `output` makes the writes of the node from the state at
/// the end of the graph.
///
/// Each task of the node is a nested run: it has its own state, steps and visits, and the limits of its graph. Finished
/// tasks of a nested run do not run again when the run is resumed or the node is tried again.
///
/// ```
/// use graphrun_analysis::GraphBuilder;
/// use graphrun_core::graph::{END, Item, NodeError, START, dispatch};
/// use graphrun_engine::{Invoke, subgraph};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Part {
///     #[serde(default)]
///     text: String,
/// }
///
/// async fn shout(part: Part) -> Result<Part, NodeError> {
///     Ok(Part { text: part.text.to_uppercase() })
/// }
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Whole {
///     #[serde(default)]
///     words: Vec<String>,
///     #[serde(default)]
///     #[schemars(extend("x-merge" = "append"))]
///     shouted: Vec<String>,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Shouted {
///     shouted: Vec<String>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let part = GraphBuilder::new::<Part>("part").node("shout", shout);
/// let part = part.edge(START, "shout").edge("shout", END).compile()?;
/// let part = subgraph(
///     part,
///     |Item(text): Item<String>| Part { text },
///     |part: Part| Shouted { shouted: vec![part.text] },
/// );
///
/// let graph = GraphBuilder::new::<Whole>("whole")
///     .node("part", part)
///     .route(START, ["part"], |whole: &Whole| {
///         whole.words.iter().map(|it| dispatch("part", it)).collect::<Vec<_>>()
///     })
///     .edge("part", END)
///     .compile()?;
/// let words = vec!["a".to_owned(), "b".to_owned()];
/// let end: Whole = graph.invoke(&Whole { words, ..Whole::default() }).await?;
/// assert_eq!(end.shouted, ["A", "B"]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "child workflow")]
pub fn subgraph<A, I, O, W>(
    graph: CompiledGraph,
    input: impl Fn(A) -> I + Send + Sync + 'static,
    output: impl Fn(O) -> W + Send + Sync + 'static,
) -> Subgraph
where
    A: Argument,
    for<'a> &'a I: IntoInput,
    I: JsonSchema,
    O: DeserializeOwned + JsonSchema + Send,
    W: IntoCommand,
    W::Writes: JsonSchema,
{
    let faults = graph.misfits(&describe_types::<O, I>());
    let nested = NestedGraph::new(graph);
    let node = describe_types::<A, W::Writes>();
    let node = NodeDescription { kind: "subgraph", faults, ..node };
    Subgraph {
        description: nested.describe(node),
        nested,
        input: Box::new(move |ctx| Ok((&input(A::take(ctx)?)).into_input()?)),
        output: Box::new(move |state| output(state.read()?).into_command()),
    }
}

#[async_trait]
impl Node for Subgraph {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let input = (self.input)(&ctx)?;
        (self.output)(&self.nested.run(&ctx, input).await?)
    }

    fn describe(&self) -> NodeDescription {
        self.description.clone()
    }
}

impl fmt::Debug for Subgraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subgraph({})", self.nested.graph().definition().name)
    }
}
