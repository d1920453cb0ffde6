use graphrun::sandbox::*;
#[tokio::test]
async fn try_it() {
    let t = std::time::Instant::now();
    let sandbox = Sandbox::probe().unwrap();
    eprintln!("probe {:?}", t.elapsed());
    let job = Job {
        argv: ["python3", "a.py"].map(String::from).into(),
        files: vec![SourceFile { path: "a.py".into(), content: "import os;print(os.listdir('/'), os.listdir('/box'), os.listdir('/proc/self/fd'), dict(os.environ)); open('out','w').write('hey')".into() }],
        collect: vec!["out".into(), "nope".into()],
        ..Job::default()
    };
    for _ in 0..5 {
        let t = std::time::Instant::now();
        let f = sandbox.run(&job, &Default::default()).await.unwrap();
        eprintln!("{:?} {f:?}", t.elapsed());
    }
    let job = Job { argv: vec!["true".into()], ..Job::default() };
    for _ in 0..5 {
        let t = std::time::Instant::now();
        sandbox.run(&job, &Default::default()).await.unwrap();
        eprintln!("{:?}", t.elapsed());
    }
}
