//! Connections, and transactions that are retried after a conflict or a lost connection.
//!
//! All of it runs on separate threads: nodes that block the caller's runtime delay nothing here. If
//! a `COMMIT` gets no response, its outcome is never guessed: the next attempt knows about the
//! doubt, takes the same lock, and checks.

use std::{
    fmt,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolConfig, QueueMode,
    RecyclingMethod, Timeouts,
};
use futures_util::future::try_join;
use graphrun_engine::checkpoint::CheckpointError;
use tokio::{runtime, task::JoinError, time};
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql},
};

use super::{
    fault::{Fault, unusable},
    place::DatabaseAddress,
    tls,
};

/// The most connections of a process, besides the one for leases. They are opened on demand.
const CONNECTIONS_MAX: usize = 4;

/// The threads that communicate with the server.
const THREADS: usize = 2;

/// The time limit of one attempt.
const TRY_TIME: Duration = Duration::from_secs(30);

/// The time limit of an attempt in a lease transaction: much shorter than the lease.
const LEASE_TIME: Duration = Duration::from_secs(4);

/// How long a transaction is retried: shorter than a lease, which another process would acquire.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest pause between two attempts. The first pause is a hundredth of it.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The settings of a session. They override settings of the user's role: a commit is confirmed only
/// when it is on the server's disk.
///
/// The server keeps the plans of statements, and makes many of them while its tables are empty, when reading all of a
/// table is cheapest. Each statement of ours has an index, so it keeps its speed with any statistics.
const SESSION: &str = "
    SET client_encoding = 'UTF8';
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = '25s';
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '10s';
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';
";

/// A server, and the threads that communicate with it.
pub struct Server {
    pub(super) place: DatabaseAddress,
    pool: Pool,
    /// A separate connection, so that other work never delays the renewal of leases.
    leases: Pool,
    runtime: Option<runtime::Runtime>,
}

/// Attempts at the same work that were made before, as a part of a larger transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    /// When they began.
    pub(super) since: Instant,
    /// Whether one of them may have been committed.
    pub(super) in_doubt: bool,
}

/// The work of one transaction. It may be retried several times.
///
/// The first statement only reads: it is sent before the server confirms the begin of the
/// transaction.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// The result.
    type Output: Send + 'static;

    /// The mode of the transaction.
    const MODE: Mode = Mode::Write;

    /// Does the work.
    ///
    /// # Errors
    ///
    /// Fails when the transaction must end.
    async fn attempt(&self, session: &Session) -> Result<Self::Output, Fault>;

    /// Does the work after an attempt that may have been committed. By default it is repeated.
    ///
    /// # Errors
    ///
    /// Fails when the transaction must end.
    async fn attempt_after_doubt(&self, session: &Session) -> Result<Self::Output, Fault> {
        self.attempt(session).await
    }
}

/// The purpose of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads one snapshot.
    Read,
    /// Takes the locks it needs.
    Write,
    /// Writes only leases.
    Lease,
    /// Writes with one statement, which is a whole transaction.
    Statement,
}

/// A connection in a transaction. It is reused only if the transaction ended.
pub struct Session(Option<Object>);

impl Server {
    /// Configures the connections to a server. Nothing is sent yet.
    pub(super) fn new(place: DatabaseAddress) -> Result<Self, CheckpointError> {
        let failed = |error: &dyn fmt::Display| CheckpointError::Storage {
            action: format!("open {place}"),
            source: error.to_string().into(),
        };
        // A runtime that is dropped in another one would panic, so it is made when nothing else can fail.
        let (pool, leases) = (pool(&place, CONNECTIONS_MAX)?, pool(&place, 1)?);
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        Ok(Self { place, pool, leases, runtime: Some(runtime) })
    }

    /// Opens a connection outside of any transaction, which is not reused.
    pub(super) async fn connect(&self) -> Result<ClientWrapper, Fault> {
        Ok(Object::take(self.pool.get().await?))
    }

    /// Runs a future on the threads of the server. It completes even if the caller drops the
    /// future.
    pub(super) async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CheckpointError>> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        self.runtime().spawn(work).await.unwrap_or_else(|error| Err(unfinished(error)))
    }

    /// Runs a future on the threads of the server.
    pub(super) fn detach(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(work);
    }

    fn runtime(&self) -> &runtime::Runtime {
        self.runtime.as_ref().expect("it is there until the server is dropped")
    }

    /// Runs a future on the threads of the server and blocks the calling thread, in any runtime.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CheckpointError>> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            // The caller may be gone.
            let _ = sender.send(work.await);
        });
        receiver.recv().unwrap_or_else(|error| {
            let action = "talk to the server".to_owned();
            Err(CheckpointError::Storage { action, source: error.into() })
        })
    }

    /// Runs a transaction on the threads of the server. It completes even if the caller drops the
    /// future.
    ///
    /// # Errors
    ///
    /// Fails when the work does, and when the server cannot be reached for several seconds.
    pub async fn run<W: Work>(
        self: &Arc<Self>,
        action: String,
        work: W,
    ) -> Result<W::Output, CheckpointError> {
        let server = Arc::clone(self);
        self.spawn(async move { server.transact(action, &work).await }).await
    }

    /// Runs a transaction, and retries it while it fails for transient reasons.
    pub(super) async fn transact<W: Work>(
        &self,
        action: String,
        work: &W,
    ) -> Result<W::Output, CheckpointError> {
        let earlier = Earlier { since: Instant::now(), in_doubt: false };
        self.transact_after(earlier, action, work).await
    }

    /// Runs a transaction after earlier attempts, and retries it while it fails for transient reasons.
    pub(super) async fn transact_after<W: Work>(
        &self,
        Earlier { since, mut in_doubt }: Earlier,
        action: String,
        work: &W,
    ) -> Result<W::Output, CheckpointError> {
        let mut pause = PAUSE_MAX / 100;
        let patience = match W::MODE {
            Mode::Read | Mode::Write | Mode::Statement => PATIENCE,
            Mode::Lease => LEASE_TIME,
        };
        let deadline = since + patience;
        loop {
            let (fault, sent) = match self.attempt_once(work, in_doubt).await {
                Ok(made) => return Ok(made),
                Err(failed) => failed,
            };
            in_doubt |= sent;
            if !fault.is_passing() {
                return Err(fault.explain(&self.place, action));
            }
            // Random, so that transactions in conflict do not collide again.
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

    /// Makes one attempt. If it fails, also returns whether the transaction may be committed.
    pub(super) async fn attempt_once<W: Work>(
        &self,
        work: &W,
        in_doubt: bool,
    ) -> Result<W::Output, (Fault, bool)> {
        let try_time = match W::MODE {
            Mode::Read | Mode::Write | Mode::Statement => TRY_TIME,
            Mode::Lease => LEASE_TIME,
        };
        let mut sent = false;
        let tried = time::timeout(try_time, self.attempt(work, in_doubt, &mut sent)).await;
        tried.unwrap_or(Err(Fault::Silent)).map_err(|fault| (fault, sent))
    }

    /// Makes one attempt. `sent` is true once the end of the transaction is sent.
    async fn attempt<W: Work>(
        &self,
        work: &W,
        in_doubt: bool,
        sent: &mut bool,
    ) -> Result<W::Output, Fault> {
        let (pool, begin) = match W::MODE {
            Mode::Read => (&self.pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            Mode::Write => (&self.pool, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
            Mode::Lease => (&self.leases, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
            Mode::Statement => return self.attempt_statement(work, in_doubt, sent).await,
        };
        let session = Session(Some(pool.get().await?));
        // Both are sent at once; a read in a transaction that did not begin does no harm.
        let begun = async { Ok(session.client().batch_execute(begin).await?) };
        let worked = try_join(begun, attempt_at(work, &session, in_doubt)).await;
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

    /// Makes one attempt at work whose last statement is a whole transaction.
    async fn attempt_statement<W: Work>(
        &self,
        work: &W,
        in_doubt: bool,
        sent: &mut bool,
    ) -> Result<W::Output, Fault> {
        let session = Session(Some(self.pool.get().await?));
        // The time limit may end the attempt at any moment from now on.
        *sent = true;
        let worked = attempt_at(work, &session, in_doubt).await;
        *sent = worked.as_ref().err().is_none_or(Fault::leaves_doubt);
        if matches!(&worked, Ok(_) | Err(Fault::Known(_) | Fault::Refused(_))) {
            session.keep();
        }
        worked
    }
}

async fn attempt_at<W: Work>(
    work: &W,
    session: &Session,
    in_doubt: bool,
) -> Result<W::Output, Fault> {
    if in_doubt { work.attempt_after_doubt(session).await } else { work.attempt(session).await }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The storage may be dropped in a thread that must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Session {
    pub(super) fn client(&self) -> &Object {
        self.0.as_ref().expect("it is there until it is kept")
    }

    /// Returns the rows of a statement.
    ///
    /// # Errors
    ///
    /// Fails when the server rejects it, and when the connection is lost.
    pub async fn query(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        let statement = self.client().prepare_cached(sql).await?;
        Ok(self.client().query(&statement, values).await?)
    }

    /// Returns the first row of a statement.
    ///
    /// # Errors
    ///
    /// Fails when the server rejects it, and when the connection is lost.
    pub async fn first(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Fault> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// Executes a statement and returns the number of changed rows.
    ///
    /// # Errors
    ///
    /// Fails when the server rejects it, and when the connection is lost.
    pub async fn execute(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<u64, Fault> {
        let statement = self.client().prepare_cached(sql).await?;
        Ok(self.client().execute(&statement, values).await?)
    }

    /// Returns the connection to the pool.
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

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

/// Returns a column that must exist.
///
/// # Errors
///
/// Fails when there is no such column, and when it has another type.
pub fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Fault> {
    Ok(row.try_get(column)?)
}

fn pool(place: &DatabaseAddress, size: usize) -> Result<Pool, CheckpointError> {
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

pub(super) fn unfinished(error: JoinError) -> CheckpointError {
    CheckpointError::Storage { action: "finish a transaction".to_owned(), source: error.into() }
}
