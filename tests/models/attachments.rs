//! Files in a message, in the form of each protocol.

use axum::response::{IntoResponse as _, Response};
use graphrun::models::{
    Attachment, ChatModel as _, ChatRequest, Message, ModelError, Profile, Protocol,
};
use serde_json::{Value, json};

use super::peer::{Peer, client, request};

fn empty_reply() -> Response {
    "{}".into_response()
}

/// Returns the last message that a provider gets with these files, and the error of the client.
async fn sent(protocol: Protocol, files: &[(&str, &str)]) -> (Option<Value>, ModelError) {
    let peer = Peer::start(|_| empty_reply()).await;
    let client = client(&peer.base_url, Profile { protocol, ..Profile::default() });
    let files = files.iter().map(|(name, text)| Attachment::of_file(name, text.as_bytes()));
    let attachments = files.collect::<Result<_, _>>().unwrap();
    let message = Message { attachments, ..Message::user("What is it?") };
    let request = ChatRequest { messages: vec![message], ..request("") };
    let error = client.chat(&request).await.expect_err("the reply is empty");
    let body = peer.seen().first().map(|it| it.body.clone());
    let list = body.map(|body| {
        ["messages", "input", "contents"].iter().find_map(|name| body.get(name).cloned()).unwrap()
    });
    (list.map(|it| it[0].clone()), error)
}

const FILES: [(&str, &str); 3] = [("a.png", "pixels"), ("b.pdf", "pages"), ("c.md", "# Notes")];
const IMAGE: &str = "cGl4ZWxz";
const PDF: &str = "cGFnZXM=";
const NOTES: &str = "File `c.md`:\n\n# Notes";

#[tokio::test]
async fn files_stand_before_the_text_in_the_form_of_the_protocol() {
    let text = |kind: &str, text: &str| json!({"type": kind, "text": text});
    let url = |media_type: &str, data: &str| format!("data:{media_type};base64,{data}");
    let source = |media_type: &str, data: &str| json!({"type": "base64", "media_type": media_type, "data": data});
    let image = url("image/png", IMAGE);
    let pdf = url("application/pdf", PDF);
    let cases = [
        (
            Protocol::Chat,
            json!({"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": image}},
                {"type": "file", "file": {"filename": "b.pdf", "file_data": pdf}},
                text("text", NOTES),
                text("text", "What is it?"),
            ]}),
        ),
        (
            Protocol::Responses,
            json!({"role": "user", "content": [
                {"type": "input_image", "image_url": image},
                {"type": "input_file", "filename": "b.pdf", "file_data": pdf},
                text("input_text", NOTES),
                text("input_text", "What is it?"),
            ]}),
        ),
        (
            Protocol::Anthropic,
            json!({"role": "user", "content": [
                {"type": "image", "source": source("image/png", IMAGE)},
                {"type": "document", "source": source("application/pdf", PDF), "title": "b.pdf"},
                text("text", NOTES),
                text("text", "What is it?"),
            ]}),
        ),
        (
            Protocol::Gemini,
            json!({"role": "user", "parts": [
                {"inlineData": {"mimeType": "image/png", "data": IMAGE}},
                {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
                {"text": NOTES},
                {"text": "What is it?"},
            ]}),
        ),
    ];
    for (protocol, expected) in cases {
        assert_eq!(sent(protocol, &FILES).await.0, Some(expected), "{protocol:?}");
    }
}

#[tokio::test]
async fn audio_goes_only_where_the_protocol_has_a_place_for_it() {
    let (message, _) = sent(Protocol::Chat, &[("a.mp3", "sound")]).await;
    let audio = json!({"data": "c291bmQ=", "format": "mp3"});
    let expected = json!({"type": "input_audio", "input_audio": audio});
    assert_eq!(message.unwrap()["content"][0], expected);
    let (message, _) = sent(Protocol::Gemini, &[("a.flac", "sound")]).await;
    let expected = json!({"inlineData": {"mimeType": "audio/flac", "data": "c291bmQ="}});
    assert_eq!(message.unwrap()["parts"][0], expected);
    let refused = [
        (Protocol::Chat, "a.flac"),
        (Protocol::Responses, "a.wav"),
        (Protocol::Anthropic, "a.wav"),
    ];
    for (protocol, name) in refused {
        let (message, error) = sent(protocol, &[(name, "sound")]).await;
        assert_eq!(message, None, "nothing was sent to {protocol:?}");
        let expected = format!(
            "the model cannot be sent `{name}`: its protocol takes no audio file of this type"
        );
        assert_eq!((error.to_string(), error.is_retryable()), (expected, false));
    }
}
