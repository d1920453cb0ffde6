//! Connections, and transactions that are tried again when they meet others or the connection is
//! lost.
//!
//! All of it runs on threads of its own: nodes that block the caller's runtime delay nothing here.
//! Whether a `COMMIT` was done that no answer came to is never guessed: the next try is told of the
//! doubt, takes the lock that the first one had, and looks.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolConfig, QueueMode,
    RecyclingMethod, Timeouts,
};
use futures_util::future::try_join;
use tokio::{runtime, task::JoinError, time};
use tokio_postgres::{Row, types::ToSql};

use super::{
    fault::{Fault, unusable},
    place::Place,
    tls,
};
use crate::{
    checkpoint::CheckpointError,
    storage::{journal::Codec, open_steps::OpenSteps},
};

/// The most connections of a process, apart from the one for leases. They are made when needed.
const CONNECTIONS_MAX: usize = 4;

/// The threads that speak with the server.
const THREADS: usize = 2;

/// How long one try may take.
const TRY_TIME: Duration = Duration::from_secs(30);

/// How long one may take that is about a lease: much shorter than the lease.
const LEASE_TIME: Duration = Duration::from_secs(4);

/// How long a transaction is tried again: shorter than a lease, which others would take over.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest pause between two tries. They begin with a hundredth of it.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How a session is set up. What is turned on here is never turned off by the user's role: a commit
/// is on the server's disk when it is told.
const SESSION: &str = "
    SET client_encoding = 'UTF8';
    SET statement_timeout = '25s';
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';
";

/// A server, and the threads that speak with it.
pub(super) struct Server {
    pub(super) place: Place,
    pool: Pool,
    /// A connection of their own, so that leases are renewed whatever else is going on.
    leases: Pool,
    codec: Mutex<Codec>,
    open_steps: Mutex<OpenSteps>,
    runtime: Option<runtime::Runtime>,
}

/// What is done in a transaction. It may be tried several times.
///
/// The first statement only reads: it is on its way before the transaction is known to have begun.
#[async_trait]
pub(super) trait Work: Send + Sync + 'static {
    /// What comes of it.
    type Made: Send + 'static;

    /// How it is done.
    const MODE: Mode = Mode::Write;

    /// Does it. With `in_doubt` an earlier try may have been committed.
    async fn attempt(&self, session: &Session, in_doubt: bool) -> Result<Self::Made, Fault>;
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It reads one snapshot.
    Read,
    /// It takes the locks it needs.
    Write,
    /// It writes nothing but leases.
    Lease,
}

/// A connection in a transaction. It is used again only if the transaction came to its end.
pub(super) struct Session(Option<Object>);

impl Server {
    /// Sets up the way to a server. Nothing is sent yet.
    pub(super) fn new(place: Place) -> Result<Self, CheckpointError> {
        let failed = |error: &dyn fmt::Display| CheckpointError::Storage {
            action: format!("open {place}"),
            source: error.to_string().into(),
        };
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        let codec = Codec::new().map_err(|error| failed(&error))?;
        let (pool, leases) = (pool(&place, CONNECTIONS_MAX)?, pool(&place, 1)?);
        let (codec, open_steps) = (Mutex::new(codec), Mutex::default());
        Ok(Self { place, pool, leases, codec, open_steps, runtime: Some(runtime) })
    }

    /// What this process knows of the open steps of runs.
    pub(super) fn open_steps(&self) -> MutexGuard<'_, OpenSteps> {
        self.open_steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection outside of any transaction, which is not used for others.
    pub(super) async fn connect(&self) -> Result<ClientWrapper, Fault> {
        Ok(Object::take(self.pool.get().await?))
    }

    /// Does something on the threads of the server. It comes to its end also if nobody waits for it.
    pub(super) async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CheckpointError>> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let runtime = self.runtime.as_ref().expect("it is there until the server is dropped");
        runtime.spawn(work).await.unwrap_or_else(|error| Err(unfinished(error)))
    }

    /// Does something on the threads of the server while this one waits, in whatever runtime it is.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CheckpointError>> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let (told, heard) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("it is there until the server is dropped");
        runtime.spawn(async move {
            // Whoever asked may be gone.
            let _ = told.send(work.await);
        });
        heard.recv().unwrap_or_else(|error| {
            let action = "speak with the server".to_owned();
            Err(CheckpointError::Storage { action, source: error.into() })
        })
    }

    /// Does something that takes a while without waiting for anything.
    pub(super) async fn compute<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(unfinished(error)))
    }

    /// Works with the tools that make rows. A panic of another user of them left nothing half-done.
    pub(super) fn with_codec<T>(&self, work: impl FnOnce(&mut Codec) -> T) -> T {
        work(&mut self.codec.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does work in a transaction, and again for as long as it fails for reasons that pass.
    pub(super) async fn transact<W: Work>(
        &self,
        action: String,
        work: &W,
    ) -> Result<W::Made, CheckpointError> {
        let mut pause = PAUSE_MAX / 100;
        let mut in_doubt = false;
        let (try_time, patience) = match W::MODE {
            Mode::Read | Mode::Write => (TRY_TIME, PATIENCE),
            Mode::Lease => (LEASE_TIME, LEASE_TIME),
        };
        let deadline = Instant::now() + patience;
        loop {
            let mut sent = false;
            let tried = time::timeout(try_time, self.attempt(work, in_doubt, &mut sent)).await;
            let fault = match tried.unwrap_or(Err(Fault::Silent)) {
                Ok(made) => return Ok(made),
                Err(fault) => fault,
            };
            in_doubt |= sent;
            if !fault.is_passing() {
                return Err(fault.explain(&self.place, action));
            }
            // At random, so that those who met do not meet again.
            let jittered = pause.mul_f64(rand::random_range(0.5..1.0));
            if Instant::now() + jittered >= deadline {
                return Err(if in_doubt {
                    fault.explain_doubt(&self.place, action)
                } else {
                    fault.explain(&self.place, action)
                });
            }
            tracing::debug!(%action, %fault, "again");
            time::sleep(jittered).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Tries once. `sent` says whether the end of the transaction is on its way.
    async fn attempt<W: Work>(
        &self,
        work: &W,
        in_doubt: bool,
        sent: &mut bool,
    ) -> Result<W::Made, Fault> {
        let (pool, begin) = match W::MODE {
            Mode::Read => (&self.pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            Mode::Write => (&self.pool, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
            Mode::Lease => (&self.leases, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
        };
        let session = Session(Some(pool.get().await?));
        // Both are sent at once; what reads in a transaction that did not begin does no harm.
        let begun = async { Ok(session.client().batch_execute(begin).await?) };
        let worked = try_join(begun, work.attempt(&session, in_doubt)).await;
        let client = session.client();
        match worked {
            Ok(((), made)) => {
                *sent = W::MODE != Mode::Read;
                client.batch_execute("COMMIT").await?;
                session.keep();
                Ok(made)
            }
            Err(fault @ (Fault::Known(_) | Fault::Refused(_))) => {
                if client.batch_execute("ROLLBACK").await.is_ok() {
                    session.keep();
                }
                Err(fault)
            }
            Err(fault) => Err(fault),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be dropped where nothing may wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Session {
    pub(super) fn client(&self) -> &Object {
        self.0.as_ref().expect("it is there until it is kept")
    }

    /// The rows that a statement gives.
    pub(super) async fn query(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        let statement = self.client().prepare_cached(sql).await?;
        Ok(self.client().query(&statement, values).await?)
    }

    /// The first row that a statement gives.
    pub(super) async fn first(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Fault> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// Does a statement and gives the number of rows it changed.
    pub(super) async fn execute(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Fault> {
        let statement = self.client().prepare_cached(sql).await?;
        Ok(self.client().execute(&statement, values).await?)
    }

    /// Gives the connection back for others to use.
    fn keep(mut self) {
        self.0.take();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)
    }
}

fn pool(place: &Place, size: usize) -> Result<Pool, CheckpointError> {
    let tls = tls::connector(&place.trust).map_err(|reason| unusable(place, reason))?;
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(place.config.clone(), tls, config);
    let setup = Arc::new(format!("SET search_path = {}; {SESSION}", place.schema));
    let hook = Hook::async_fn(move |client, _| {
        let setup = Arc::clone(&setup);
        Box::pin(async move { client.batch_execute(&setup).await.map_err(HookError::Backend) })
    });
    let timeouts =
        Timeouts { wait: Some(TRY_TIME), create: Some(PATIENCE), recycle: Some(PATIENCE) };
    Pool::builder(manager)
        .config(PoolConfig { max_size: size, timeouts, queue_mode: QueueMode::Fifo })
        .runtime(deadpool_postgres::Runtime::Tokio1)
        .post_create(hook)
        .build()
        .map_err(|error| unusable(place, error.to_string()))
}

fn unfinished(error: JoinError) -> CheckpointError {
    CheckpointError::Storage { action: "finish a transaction".to_owned(), source: error.into() }
}
