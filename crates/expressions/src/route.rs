//! Expressions where a run decides its way: conditions of nodes, and the values of routes.

use std::{any::Any, sync::Arc};

use graphrun_core::{
    graph::{AccessSet, Condition, RouteError, RouteView},
    id::ChannelName,
};
use serde_json::Value;

use super::{Expression, ExpressionView, exclude_each_other};

impl Expression {
    /// Returns the value for a route.
    ///
    /// # Errors
    ///
    /// Fails as [`evaluate`](Self::evaluate) does.
    pub fn evaluate_for_route(&self, view: &RouteView<'_>) -> Result<Arc<Value>, RouteError> {
        self.evaluate_about(view, view.input.item())
    }

    /// Returns the value for a route, about an item that is not dispatched yet.
    ///
    /// # Errors
    ///
    /// Fails as [`evaluate`](Self::evaluate) does.
    pub fn evaluate_for_item(
        &self,
        view: &RouteView<'_>,
        item: &Value,
    ) -> Result<Arc<Value>, RouteError> {
        self.evaluate_about(view, Some(item))
    }

    fn evaluate_about(
        &self,
        view: &RouteView<'_>,
        item: Option<&Value>,
    ) -> Result<Arc<Value>, RouteError> {
        let RouteView { state, visits, trigger, facts, .. } = *view;
        let view = ExpressionView { state, visits, item, output_dir: None, trigger, facts };
        self.evaluate(&view).map_err(|it| self.route_error(it.reason.to_string()))
    }

    /// Returns the error of a route that cannot use the value.
    pub fn route_error(&self, reason: String) -> RouteError {
        RouteError::Expression { expression: self.start(), reason }
    }
}

impl Condition for Expression {
    fn text(&self) -> &str {
        self.source()
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(self.reads())
    }

    fn access_set(&self) -> Option<AccessSet> {
        Some(self.access_set())
    }

    fn excludes(&self, other: &dyn Condition) -> bool {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| {
            self.reads_only_fields()
                && other.reads_only_fields()
                && exclude_each_other(&[(self, true), (other, true)])
        })
    }

    fn holds(&self, view: &RouteView<'_>) -> Result<bool, RouteError> {
        let value = self.evaluate_for_route(view)?;
        value.as_bool().ok_or_else(|| self.route_error(format!("`{value}` is not a bool")))
    }
}
