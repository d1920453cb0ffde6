//! Values that nodes need beside the state: clients, pools, settings.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

/// At most one value of each type, shared by the nodes of a run. They are not saved.
#[derive(Clone, Default)]
pub struct ProvidedValues(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl ProvidedValues {
    /// Adds a value, in place of one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Returns the value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        Arc::clone(self.0.get(&TypeId::of::<T>())?).downcast().ok()
    }
}

impl fmt::Debug for ProvidedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provided({} values)", self.0.len())
    }
}
