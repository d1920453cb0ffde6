//! A model provider whose replies come from the test.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

/// Reads a whole request, as a client accepts no reply before that, and answers it.
pub(crate) fn answer(call: &mut TcpStream) {
    answer_with(call, "42");
}

/// Reads a request, answers it with a text, and returns it.
pub(crate) fn answer_with(call: &mut TcpStream, text: &str) -> String {
    let request = read_request(call);
    reply(call, &json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}));
    request
}

/// Answers a request that has been read.
pub(crate) fn reply(call: &mut TcpStream, body: &Value) {
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    write!(call, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

/// Reads a whole request, and returns its body.
pub(crate) fn read_request(call: &mut TcpStream) -> String {
    let mut request = BufReader::new(&*call);
    let mut length = 0;
    for line in request.by_ref().lines().map(Result::unwrap).take_while(|it| !it.is_empty()) {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = String::new();
    request.take(length).read_to_string(&mut body).unwrap();
    body
}
