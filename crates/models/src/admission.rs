//! The last check before a request is sent.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

/// Checks whether a request may still be sent after it has waited for its turn.
#[async_trait]
pub trait Admit: fmt::Debug + Send + Sync {
    /// Returns if the request may be sent. If not, it waits until the request is dropped.
    async fn admit(&self);
}

/// The last check before a request is sent; none by default. It is no part of the request: two requests that differ in it
/// are equal.
#[derive(Clone, Debug, Default)]
pub struct Admission(Option<Arc<dyn Admit>>);

impl Admission {
    /// Creates the check of one request.
    pub fn by(check: Arc<dyn Admit>) -> Self {
        Self(Some(check))
    }

    /// Waits until the request may be sent.
    pub async fn admit(&self) {
        if let Some(check) = &self.0 {
            check.admit().await;
        }
    }
}

impl PartialEq for Admission {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
