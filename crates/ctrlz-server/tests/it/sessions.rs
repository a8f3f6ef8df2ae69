//! The three endpoints of the Python agent, with its JSON format.

use serde_json::json;

use crate::lab::{Lab, step};

#[test]
fn a_diff_has_the_five_fields_and_no_others() {
    let lab = Lab::new();
    let reply = lab.get("/session/s1/diff");
    assert_eq!(reply.status, 200, "{reply:?}");
    let expected = json!({
        "diffs": [
            { "file": "a.txt", "before": "one\n", "after": "one\ntwo\n", "additions": 1, "deletions": 0 },
            { "file": "b.txt", "before": "", "after": "new\n", "additions": 1, "deletions": 0 },
        ]
    });
    assert_eq!(reply.json(), expected);
}

#[test]
fn revert_takes_effect_at_once_and_can_be_unreverted() {
    let lab = Lab::new();
    step(&lab.workspace(), "s1", "m2", || {
        std::fs::write(lab.root().join("a.txt"), "one\ntwo\nthree\n").unwrap();
    });
    let reply = lab.post("/session/s1/revert", &json!({ "messageID": "m2" }));
    assert_eq!(reply.status, 200, "{reply:?}");
    let info = reply.json();
    assert_eq!((&info["messageID"], &info["partID"]), (&json!("m2"), &json!(null)));
    assert_eq!(info["snapshot"].as_str().unwrap().len(), 40);
    assert!(info["diff"].as_str().unwrap().contains("-three"), "{info}");
    assert_eq!(info["report"]["complete"], true);
    assert_eq!((lab.read("a.txt").as_str(), lab.read("b.txt").as_str()), ("one\ntwo\n", "new\n"));

    let moved = lab.post("/session/s1/revert", &json!({ "messageID": "m1", "partID": null }));
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!((lab.read("a.txt").as_str(), lab.read("b.txt").as_str()), ("one\n", "(none)"));
    assert_eq!(lab.get("/session/s1/diff").json(), json!({ "diffs": [] }), "all is reverted");

    let back = lab.post("/session/s1/unrevert", &json!({}));
    assert_eq!(back.status, 200, "{back:?}");
    assert_eq!(lab.read("a.txt"), "one\ntwo\nthree\n");
    assert_eq!(lab.post("/session/s1/unrevert", &json!({})).kind(), "nothing_reverted");
}

#[test]
fn revert_keeps_user_edits_and_reports_them_as_conflicts() {
    let lab = Lab::new();
    std::fs::write(lab.root().join("a.txt"), "one\nmine\n").unwrap();
    let reply = lab.post("/session/s1/revert", &json!({ "messageID": "m1" })).json();
    assert_eq!(lab.read("a.txt"), "one\nmine\n");
    assert_eq!(reply["report"]["complete"], false);
    assert_eq!(reply["report"]["conflicts"][0]["path"], "a.txt");
}

#[test]
fn unknown_sessions_get_404_and_invalid_bodies_get_400() {
    let lab = Lab::new();
    assert_eq!(lab.get("/session/nobody/diff").status, 404);
    assert_eq!(lab.get("/session/nobody/diff").kind(), "no_such_session");
    let unknown = lab.post("/session/s1/revert", &json!({ "messageID": "nothing" }));
    assert_eq!((unknown.status, unknown.kind().as_str()), (404, "no_such_message"));
    for body in
        [json!({}), json!([]), json!({ "messageID": 1 }), json!({ "messageID": "m1", "x": 1 })]
    {
        let reply = lab.post("/session/s1/revert", &body);
        assert_eq!((reply.status, reply.kind().as_str()), (400, "invalid_params"), "{body}");
    }
}

#[test]
fn a_session_id_in_two_projects_requires_the_project_parameter() {
    let lab = Lab::new();
    let other = lab.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let options = ctrlz::Options::new(lab.dir.path().join("data"));
    let workspace = ctrlz::Workspace::open(&other, options).unwrap();
    step(&workspace, "s1", "m1", || std::fs::write(other.join("c.txt"), "other\n").unwrap());
    let added = lab.add_through_socket(&other);
    let revert = json!({ "messageID": "m1" });
    for reply in [
        lab.get("/session/s1/diff"),
        lab.post("/session/s1/revert", &revert),
        lab.post("/session/s1/unrevert", &json!({})),
    ] {
        assert_eq!((reply.status, reply.kind().as_str()), (400, "invalid_params"), "{reply:?}");
        let projects = &reply.json()["error"]["details"]["projects"];
        assert_eq!(*projects, json!([lab.project, added]));
    }
    assert_eq!(lab.read("a.txt"), "one\ntwo\n", "nothing was reverted");
    let diff = lab.get(&format!("/session/s1/diff?project={added}")).json();
    assert_eq!(diff["diffs"][0]["file"], "c.txt");
    let done = lab.post(&format!("/session/s1/revert?project={added}"), &revert);
    assert_eq!(done.status, 200, "{done:?}");
    assert!(!other.join("c.txt").exists());
    assert_eq!(lab.read("a.txt"), "one\ntwo\n", "the other project is unchanged");
    let unknown = lab.get("/session/s1/diff?project=0123456789abcdef");
    assert_eq!((unknown.status, unknown.kind().as_str()), (404, "no_such_project"));
    assert_eq!(lab.get("/session/s1/diff?other=1").status, 400);
}
