//! The gate in front of a provider's model: how many requests it gets at once, and whether it gets any.
//!
//! All runs of a process share one gate for each address, key and model. Four rules keep a fleet of tasks from making
//! an outage worse:
//! - **Concurrency** adapts: it grows while requests succeed, and halves when the provider limits the rate or has no
//!   capacity. The wait that the provider asks for holds back all requests.
//! - **Rates** that the provider states in its headers are kept: a request that would exceed one waits until the allowance
//!   has grown back.
//! - **A breaker** opens when requests fail one after the other. Until it closes, requests fail at once. From time to
//!   time one request is let through to see whether the provider has recovered.
//! - **A budget** bounds the requests that repeat a failed one to a fifth of the others, and a few for every process.
//!
//! A refused request costs nothing. Its error has the time at which another attempt makes sense, so the engine waits in
//! its durable timers, and a list of models falls back at once.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use super::{
    ModelError,
    rates::{Bucket, Rates},
};

/// The concurrency of a new gate. It doubles with each round of successful requests until the first refusal.
const CONCURRENCY_FIRST: f64 = 8.0;
/// The largest concurrency.
const CONCURRENCY_MAX: f64 = 512.0;

/// The failures in a row that open the breaker.
const FAILURES_IN_A_ROW: u32 = 5;
/// The requests of the last 30 seconds of which half must fail to open the breaker.
const REQUESTS_JUDGED_MIN: usize = 10;
const JUDGED_FOR: Duration = Duration::from_secs(30);
/// The most requests that are kept to be judged.
const REQUESTS_JUDGED_MAX: usize = 256;
/// How long the breaker is open for the first time. It doubles with each failed probe.
const OPEN_FIRST: Duration = Duration::from_secs(2);
const OPEN_MAX: Duration = Duration::from_secs(30);

/// The repeated requests that are allowed at once.
const REPEATS_AT_ONCE: f64 = 10.0;
/// The repeated requests that each other request allows.
const REPEATS_PER_REQUEST: f64 = 0.2;
/// The repeated requests that are allowed in a second in any case, so that a single run can repeat its own.
const REPEATS_PER_SECOND: f64 = 0.5;

/// The longest wait of all requests for which one reply can ask: a wrong header must not silence a provider for a day.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When to ask again, at the latest, while a probe is under way.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The longest wait inside the gate. A longer one is left to the caller.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The most gates of a process. Unused ones are dropped first.
const GATES_MAX: usize = 1024;

static GATES: LazyLock<Mutex<BTreeMap<String, Arc<Gate>>>> = LazyLock::new(Mutex::default);

/// The gate of one model.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    /// Wakes the requests that wait for a slot or a probe.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    running: usize,
    concurrency: f64,
    /// Whether the concurrency was reduced before: from then on it grows slowly.
    was_limited: bool,
    /// When the concurrency was last reduced.
    reduced: Option<Instant>,
    /// Until when the provider has asked for no requests, and its words.
    paused: Option<(Instant, ModelError)>,
    /// What the provider allows, in requests and in tokens.
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    breaker: Breaker,
    /// The repeated requests that are allowed now; negative if some wait for their turn.
    repeats: f64,
    repeats_at: Instant,
}

#[derive(Debug, Default)]
struct Breaker {
    failures_in_a_row: u32,
    /// The last requests, and whether each failed.
    judged: VecDeque<(Instant, bool)>,
    open: Option<OpenBreaker>,
}

/// An open breaker.
#[derive(Debug)]
struct OpenBreaker {
    until: Instant,
    lasts: Duration,
    /// Whether a request is under way to see whether the provider has recovered.
    is_probing: bool,
    error: ModelError,
}

/// The permission for one request. Its slot is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    gate: Arc<Gate>,
    began: Instant,
    is_probe: bool,
    is_repeat: bool,
}

/// What a request has to do before it is sent.
enum Entry {
    Go { is_probe: bool },
    WaitForChange,
    WaitFor(Duration),
    Refuse(ModelError),
}

impl Default for State {
    fn default() -> Self {
        Self {
            running: 0,
            concurrency: CONCURRENCY_FIRST,
            was_limited: false,
            reduced: None,
            paused: None,
            requests: None,
            tokens: None,
            breaker: Breaker::default(),
            repeats: REPEATS_AT_ONCE,
            repeats_at: Instant::now(),
        }
    }
}

impl Gate {
    /// Returns the gate of this name, which all users of the name share.
    pub(super) fn shared(name: &str) -> Arc<Self> {
        let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= GATES_MAX && !gates.contains_key(name) {
            gates.retain(|_, it| Arc::strong_count(it) > 1);
        }
        Arc::clone(gates.entry(name.to_owned()).or_default())
    }

    /// Waits for the permission to send a request. `is_repeat` says whether it repeats a failed one, `tokens` about how many
    /// tokens it has.
    ///
    /// # Errors
    ///
    /// Returns the failure of earlier requests, with the time after which another attempt makes sense.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has taken no slot.
    pub(super) async fn enter(
        self: &Arc<Self>,
        is_repeat: bool,
        tokens: u64,
    ) -> Result<Permit, ModelError> {
        let mut must_pay = is_repeat;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on, no change is missed.
            changed.as_mut().enable();
            let entry = self.state().enter(Instant::now(), &mut must_pay, tokens);
            match entry {
                Entry::Go { is_probe } => {
                    let gate = Arc::clone(self);
                    let began = Instant::now();
                    return Ok(Permit { gate, began, is_probe, is_repeat });
                }
                Entry::WaitForChange => changed.await,
                Entry::WaitFor(wait) => sleep(wait).await,
                Entry::Refuse(error) => return Err(error),
            }
        }
    }

    /// [Enters](Self::enter), but waits no longer than until then: an attempt that ends while its request waits for the answers
    /// to others must not count as one that has worked for too long.
    pub(super) async fn enter_until(
        self: &Arc<Self>,
        until: Option<Instant>,
        is_repeat: bool,
        tokens: u64,
    ) -> Result<Permit, ModelError> {
        let enter = self.enter(is_repeat, tokens);
        match until {
            Some(until) => timeout_at(until, enter).await.unwrap_or_else(|_| Err(no_turn())),
            None => enter.await,
        }
    }

    /// Learns the rates that a reply states.
    pub(super) fn learn_rates(&self, rates: Rates) {
        let mut state = self.state();
        let now = Instant::now();
        // The other requests under way may not be counted yet.
        let others = state.running.saturating_sub(1);
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵² requests run at once")]
        let others = others as f64;
        // No request waits for longer than a pause.
        let pause = PAUSE_MAX.as_secs_f64();
        if let Some(rate) = rates.requests {
            state.requests = Bucket::of(rate, others, 1.0 / pause, now);
        }
        if let Some(rate) = rates.tokens {
            state.tokens = Bucket::of(rate, 0.0, rate.limit / pause, now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, now: Instant, must_pay: &mut bool, tokens: u64) -> Entry {
        if let Some(open) = &mut self.breaker.open {
            if now < open.until {
                return Entry::Refuse(not_asked(&open.error, open.until - now));
            }
            if open.is_probing {
                // The probe may get no answer for long, and another model may have one at once.
                return Entry::Refuse(not_asked(&open.error, open.lasts.min(PROBE_WAIT_MAX)));
            }
            open.is_probing = true;
            self.running += 1;
            return Entry::Go { is_probe: true };
        }
        if let Some((until, error)) = &self.paused
            && now < *until
        {
            let wait = *until - now;
            return if wait <= WAIT_MAX {
                Entry::WaitFor(wait)
            } else {
                Entry::Refuse(not_asked(error, wait))
            };
        }
        if self.running >= self.slots() {
            return Entry::WaitForChange;
        }
        let wait = self.wait_for_rates(now, tokens);
        if wait > WAIT_MAX {
            return Entry::Refuse(rate_used_up(wait));
        }
        if !wait.is_zero() {
            return Entry::WaitFor(wait);
        }
        if *must_pay {
            match self.pay_for_repeat(now) {
                Err(wait) => return Entry::Refuse(too_many_repeats(wait)),
                Ok(wait) => {
                    *must_pay = false;
                    if !wait.is_zero() {
                        return Entry::WaitFor(wait);
                    }
                }
            }
        }
        self.running += 1;
        self.take_from_rates(tokens);
        Entry::Go { is_probe: false }
    }

    /// Returns how long a request has to wait until the provider allows it by its stated rates.
    fn wait_for_rates(&mut self, now: Instant, tokens: u64) -> Duration {
        let requests = self.requests.as_mut().map(|it| it.wait(1.0, now));
        let tokens = self.tokens.as_mut().map(|it| it.wait(size(tokens), now));
        requests.max(tokens).unwrap_or_default().min(PAUSE_MAX)
    }

    fn take_from_rates(&mut self, tokens: u64) {
        if let Some(bucket) = &mut self.requests {
            bucket.take(1.0);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(size(tokens));
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between one and the maximum"
    )]
    fn slots(&self) -> usize {
        self.concurrency.clamp(1.0, CONCURRENCY_MAX) as usize
    }

    /// Takes one repeated request from the budget, and returns how long it has to wait for its turn.
    ///
    /// # Errors
    ///
    /// Returns the wait if it is too long.
    fn pay_for_repeat(&mut self, now: Instant) -> Result<Duration, Duration> {
        let passed = now.saturating_duration_since(self.repeats_at).as_secs_f64();
        self.repeats_at = now;
        self.allow_repeats(passed * REPEATS_PER_SECOND);
        let debt = (1.0 - self.repeats).max(0.0);
        let wait = Duration::from_secs_f64(debt / REPEATS_PER_SECOND);
        if wait > WAIT_MAX {
            return Err(wait);
        }
        self.repeats -= 1.0;
        Ok(wait)
    }

    fn allow_repeats(&mut self, more: f64) {
        self.repeats = (self.repeats + more).min(REPEATS_AT_ONCE);
    }

    /// Learns from the outcome of a request.
    fn learn(&mut self, outcome: Result<(), &ModelError>, permit: &Permit) {
        let Permit { began, is_probe, is_repeat, .. } = *permit;
        let now = Instant::now();
        let outcome = outcome.map_err(ModelError::reason);
        match outcome {
            Ok(()) => {
                let step = if self.was_limited { 1.0 / self.concurrency } else { 1.0 };
                // It grows only while it is used; of a round of requests some have ended already.
                if self.running * 2 > self.slots() {
                    self.concurrency = (self.concurrency + step).min(CONCURRENCY_MAX);
                }
            }
            Err(ModelError::RateLimited { after, .. }) => {
                self.reduce(began, now);
                self.pause(outcome, *after, now);
            }
            Err(ModelError::Overloaded { after, .. }) => {
                self.reduce(began, now);
                self.pause(outcome, *after, now);
            }
            Err(_) => {}
        }
        // A request that repeats another one allows no further repetition.
        if !is_probe && !is_repeat {
            self.allow_repeats(REPEATS_PER_REQUEST);
        }
        let failed = match outcome {
            Err(error) if is_outage(error) => Some(error),
            _ => None,
        };
        self.breaker.learn(failed, now, is_probe);
    }

    /// Halves the concurrency, once for all requests that were under way together.
    fn reduce(&mut self, began: Instant, now: Instant) {
        if self.reduced.is_none_or(|it| began > it) {
            // More slots than were in use say nothing about what the provider accepts.
            #[expect(
                clippy::cast_precision_loss,
                reason = "far fewer than 2⁵² requests run at once"
            )]
            let used = self.running.max(1) as f64;
            self.concurrency = (self.concurrency.min(used) / 2.0).max(1.0);
            self.reduced = Some(now);
            self.was_limited = true;
        }
    }

    fn pause(&mut self, outcome: Result<(), &ModelError>, after: Option<Duration>, now: Instant) {
        let (Err(error), Some(after)) = (outcome, after) else { return };
        let until = now + after.min(PAUSE_MAX);
        if self.paused.as_ref().is_none_or(|it| it.0 < until) {
            self.paused = Some((until, error.clone()));
        }
    }
}

impl Breaker {
    fn learn(&mut self, failed: Option<&ModelError>, now: Instant, is_probe: bool) {
        let Some(error) = failed else {
            self.failures_in_a_row = 0;
            self.judge(now, false);
            if is_probe {
                *self = Self::default();
            }
            return;
        };
        self.failures_in_a_row += 1;
        let mostly_failed = self.judge(now, true);
        let after = error.retry_after().unwrap_or_default().min(PAUSE_MAX);
        match &mut self.open {
            Some(open) if is_probe => {
                open.lasts = (open.lasts * 2).min(OPEN_MAX);
                open.until = now + open.lasts.max(after);
                open.is_probing = false;
                open.error = error.clone();
            }
            // Requests that were under way when it opened change nothing.
            Some(_) => {}
            None if self.failures_in_a_row >= FAILURES_IN_A_ROW || mostly_failed => {
                let lasts = OPEN_FIRST;
                let error = error.clone();
                let until = now + lasts.max(after);
                self.open = Some(OpenBreaker { until, lasts, is_probing: false, error });
            }
            None => {}
        }
    }

    /// Adds a request, and returns whether most of the last ones failed.
    fn judge(&mut self, now: Instant, has_failed: bool) -> bool {
        let is_old = |it: &(Instant, bool)| now.saturating_duration_since(it.0) > JUDGED_FOR;
        while self.judged.front().is_some_and(is_old) || self.judged.len() >= REQUESTS_JUDGED_MAX {
            self.judged.pop_front();
        }
        self.judged.push_back((now, has_failed));
        let failed = self.judged.iter().filter(|it| it.1).count();
        self.judged.len() >= REQUESTS_JUDGED_MIN && failed * 2 >= self.judged.len()
    }
}

impl Permit {
    /// Reports the outcome of the request to the gate.
    pub(super) fn learn<T>(self, outcome: Result<&T, &ModelError>) {
        self.gate.state().learn(outcome.map(drop), &self);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.running -= 1;
        // A probe that was cancelled leaves its turn to the next request.
        if let (true, Some(open)) = (self.is_probe, &mut state.breaker.open) {
            open.is_probing = false;
        }
        drop(state);
        self.gate.changed.notify_waiters();
    }
}

/// Returns whether a failure says that the provider or the network is down. A limited rate is a sign of life.
fn is_outage(error: &ModelError) -> bool {
    matches!(
        error,
        ModelError::Overloaded { .. } | ModelError::Transient { .. } | ModelError::Timeout { .. }
    )
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵² tokens fit a request")]
fn size(tokens: u64) -> f64 {
    tokens as f64
}

fn rate_used_up(wait: Duration) -> ModelError {
    let message = "its headers allow no further request at the moment".to_owned();
    not_sent(ModelError::RateLimited { after: Some(wait), message })
}

fn no_turn() -> ModelError {
    let message = "earlier requests to it have no answers yet".to_owned();
    not_sent(ModelError::Overloaded { after: None, message })
}

fn not_sent(error: ModelError) -> ModelError {
    ModelError::NotSent { error: Box::new(error) }
}

fn too_many_repeats(wait: Duration) -> ModelError {
    let message = "too many requests of this process failed and are repeated".to_owned();
    not_sent(ModelError::Overloaded { after: Some(wait), message })
}

/// Returns the error of a request that was not sent.
fn not_asked(error: &ModelError, wait: Duration) -> ModelError {
    let (after, message) = (Some(wait), format!("not asked again yet after: {error}"));
    not_sent(match error {
        ModelError::RateLimited { message, .. } => {
            ModelError::RateLimited { after, message: message.clone() }
        }
        ModelError::Overloaded { message, .. } => {
            ModelError::Overloaded { after, message: message.clone() }
        }
        ModelError::Transient { message, .. } => {
            ModelError::Transient { after, message: message.clone() }
        }
        _ => ModelError::Transient { after, message },
    })
}
