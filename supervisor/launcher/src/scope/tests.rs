//! The scope rules against managers that the real one cannot be made to be.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A manager that answers as it is told.
struct Fake {
    refuse: Option<(&'static str, &'static str)>,
    exists: AtomicU32,
    /// Results of the jobs that are reported at once; `None` loses the job.
    result: Option<&'static str>,
    foreign_first: bool,
    answers: bool,
    jobs: broadcast::Sender<JobRemoved>,
    sent: Mutex<Vec<Vec<Property>>>,
    resets: AtomicU32,
}

impl Fake {
    fn new() -> Fake {
        Fake {
            refuse: None,
            exists: AtomicU32::new(0),
            result: Some("done"),
            foreign_first: false,
            answers: true,
            jobs: broadcast::channel(16).0,
            sent: Mutex::default(),
            resets: AtomicU32::new(0),
        }
    }

    fn names_sent(&self) -> Vec<Vec<&'static str>> {
        self.sent
            .lock()
            .unwrap()
            .iter()
            .map(|call| call.iter().map(|property| property.name).collect())
            .collect()
    }
}

impl ServiceManager for Fake {
    fn jobs(&self) -> broadcast::Receiver<JobRemoved> {
        self.jobs.subscribe()
    }

    async fn start_transient_unit(
        &self,
        _: &str,
        properties: &[Property],
        _: BorrowedFd<'_>,
    ) -> Result<String, ManagerError> {
        if !self.answers {
            std::future::pending::<()>().await;
        }
        self.sent.lock().unwrap().push(properties.to_vec());
        if let Some((name, text)) = self.refuse
            && properties.iter().any(|property| property.name == name)
        {
            return Err(ManagerError::Property(text.to_owned()));
        }
        if self.exists.load(Ordering::Relaxed) > 0 {
            self.exists.fetch_sub(1, Ordering::Relaxed);
            return Err(ManagerError::Exists);
        }
        if self.foreign_first {
            let _ = self.jobs.send(JobRemoved { job: "/job/1".into(), result: "failed".into() });
        }
        if let Some(result) = self.result {
            let _ = self.jobs.send(JobRemoved { job: "/job/7".into(), result: result.into() });
        }
        Ok("/job/7".into())
    }

    async fn stop_unit(&self, _: &str) -> Result<(), ManagerError> {
        Ok(())
    }

    async fn scopes(&self) -> Result<Vec<ScopeUnit>, ManagerError> {
        Ok(Vec::new())
    }

    async fn reset_failed_unit(&self, _: &str) -> Result<(), ManagerError> {
        self.resets.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

const LIMITS: Limits = Limits { memory_max: 1 << 20, cpu_percent: 50, tasks_max: 8, tmp_size: 1 << 20 };

async fn start(fake: &Fake, scopes: &Scopes) -> Result<(), Error> {
    let any = std::fs::File::open("/dev/null").unwrap();
    scopes.start(fake, "plugind-x-00000000.scope", "x", 42, any.as_fd(), &LIMITS).await
}

#[tokio::test]
async fn a_manager_that_knows_pidfds_gets_no_pids() {
    let fake = Fake::new();
    start(&fake, &Scopes::default()).await.unwrap();
    let names = fake.names_sent();
    assert!(names[0].contains(&"PIDFDs") && !names[0].contains(&"PIDs"), "{names:?}");
}

#[tokio::test]
async fn a_manager_without_pidfds_gets_pids_and_is_remembered() {
    let mut fake = Fake::new();
    fake.refuse = Some(("PIDFDs", "Cannot set property PIDFDs, or unknown property."));
    let scopes = Scopes::default();
    start(&fake, &scopes).await.unwrap();
    start(&fake, &scopes).await.unwrap();
    let names = fake.names_sent();
    assert_eq!(
        names.len(),
        3,
        "asked once with PIDFDs, then without, then without from the start: {names:?}"
    );
    assert!(names[1].contains(&"PIDs") && names[2].contains(&"PIDs") && !names[2].contains(&"PIDFDs"));
}

#[tokio::test]
async fn an_unknown_optional_property_is_dropped() {
    let mut fake = Fake::new();
    fake.refuse = Some(("OOMPolicy", "Cannot set property OOMPolicy, or unknown property."));
    start(&fake, &Scopes::default()).await.unwrap();
    assert!(!fake.names_sent()[1].contains(&"OOMPolicy"));
}

#[tokio::test]
async fn a_refused_limit_refuses_the_start() {
    let mut fake = Fake::new();
    fake.refuse = Some(("MemoryMax", "Cannot set property MemoryMax, or unknown property."));
    let error = start(&fake, &Scopes::default()).await.unwrap_err();
    assert_eq!(error.kind, Kind::LimitsUnavailable);
    assert!(error.message.contains("MemoryMax"), "{error}");
}

#[tokio::test]
async fn a_property_name_inside_another_is_not_confused() {
    assert!(names("Cannot set property MemorySwapMax, or unknown property.", "MemorySwapMax"));
    assert!(!names("Cannot set property MemorySwapMax, or unknown property.", "MemoryMax"));
    assert!(!names("Cannot set property PIDFDs, or unknown property.", "PIDs"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_job_ends_at_its_deadline() {
    let mut fake = Fake::new();
    fake.result = None;
    let error = start(&fake, &Scopes::default()).await.unwrap_err();
    assert_eq!(error.kind, Kind::SandboxDenied);
    assert!(error.message.contains("did not finish"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_never_answers_is_unavailable() {
    let mut fake = Fake::new();
    fake.answers = false;
    assert_eq!(start(&fake, &Scopes::default()).await.unwrap_err().kind, Kind::Unavailable);
}

#[tokio::test]
async fn only_our_own_job_counts() {
    let mut fake = Fake::new();
    fake.foreign_first = true;
    start(&fake, &Scopes::default()).await.unwrap();
}

#[tokio::test]
async fn a_failed_job_refuses_the_start_and_names_the_result() {
    let mut fake = Fake::new();
    fake.result = Some("failed");
    let error = start(&fake, &Scopes::default()).await.unwrap_err();
    assert!(error.message.contains("\"failed\""), "{error}");
}

#[tokio::test]
async fn a_leftover_failed_unit_is_reset_once() {
    let fake = Fake::new();
    fake.exists.store(1, Ordering::Relaxed);
    start(&fake, &Scopes::default()).await.unwrap();
    assert_eq!(fake.resets.load(Ordering::Relaxed), 1);
    fake.exists.store(9, Ordering::Relaxed);
    assert_eq!(start(&fake, &Scopes::default()).await.unwrap_err().kind, Kind::Conflict);
}
