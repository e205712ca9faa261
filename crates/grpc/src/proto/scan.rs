//! Reads the names of a file.

use super::tokens::{SyntaxError, Token, Tokens};

/// Braces within braces: deeper ones are none that a person writes.
const DEEPEST: usize = 64;

/// A file's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtoFile {
    /// Empty where it has none.
    pub(crate) package: String,
    /// Paths as they are written.
    pub(crate) imports: Vec<String>,
    /// The edition of protobuf, of a file that has no syntax.
    pub(crate) edition: Option<String>,
    pub(crate) services: Vec<Service>,
}

/// A service with its methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Without the package.
    pub(crate) name: String,
    pub(crate) methods: Vec<Method>,
}

/// A method, and which of its sides stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) client_streams: bool,
    pub(crate) server_streams: bool,
}

impl ProtoFile {
    /// As clients call one of its services.
    pub(crate) fn full_name(&self, service: &str) -> String {
        if self.package.is_empty() {
            service.to_owned()
        } else {
            format!("{}.{service}", self.package)
        }
    }
}

/// Reads a file.
pub(crate) fn scan(text: &[u8]) -> Result<ProtoFile, SyntaxError> {
    let mut file = ProtoFile::default();
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next()? {
        match token {
            Token::Symbol(';') => {}
            Token::Name(word) => match &*word {
                "package" => file.package = dotted_name(&mut tokens, "package")?,
                "import" => file.imports.push(import(&mut tokens)?),
                "service" => file.services.push(service(&mut tokens)?),
                "message" | "enum" | "extend" => block(&mut tokens, &word)?,
                "edition" => file.edition = edition(&mut tokens)?,
                "syntax" | "option" => statement(&mut tokens)?,
                "export" | "local" => {}
                _ => return Err(tokens.error(format!("`{word}` begins nothing in a .proto file"))),
            },
            other => return Err(tokens.error(format!("{} begins nothing", shown(Some(&other))))),
        }
    }
    Ok(file)
}

fn shown(token: Option<&Token>) -> String {
    match token {
        None => "the end of the file".to_owned(),
        Some(Token::Name(name)) => format!("`{name}`"),
        Some(Token::Text(text)) => format!("\"{text}\""),
        Some(Token::Symbol(symbol)) => format!("`{symbol}`"),
    }
}

fn expect(tokens: &mut Tokens<'_>, symbol: char) -> Result<(), SyntaxError> {
    match tokens.next()? {
        Some(Token::Symbol(found)) if found == symbol => Ok(()),
        other => {
            let found = shown(other.as_ref());
            Err(tokens.error(format!("{found} stands where `{symbol}` is expected")))
        }
    }
}

/// A name without dots.
fn name(tokens: &mut Tokens<'_>, of: &str) -> Result<String, SyntaxError> {
    match tokens.next()? {
        Some(Token::Name(name)) if is_name(&name) => Ok(name),
        other => {
            let found = shown(other.as_ref());
            Err(tokens.error(format!("{found} is no name of a {of}")))
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_good) && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// A name with dots, and the end of its statement.
fn dotted_name(tokens: &mut Tokens<'_>, of: &str) -> Result<String, SyntaxError> {
    let mut whole = String::new();
    loop {
        match tokens.next()? {
            // Blanks may stand around dots.
            Some(Token::Name(part)) => whole.push_str(&part),
            Some(Token::Symbol(';'))
                if whole.split('.').all(|it| !it.is_empty() && is_name(it)) =>
            {
                return Ok(whole);
            }
            other => {
                let found = shown(other.as_ref());
                return Err(tokens.error(format!("{found} is no part of a name of a {of}")));
            }
        }
    }
}

fn import(tokens: &mut Tokens<'_>) -> Result<String, SyntaxError> {
    if let Some(Token::Name(word)) = tokens.peek()?
        && matches!(&**word, "public" | "weak" | "option")
    {
        tokens.next()?;
    }
    match tokens.next()? {
        Some(Token::Text(path)) => {
            expect(tokens, ';')?;
            Ok(path)
        }
        other => {
            let found = shown(other.as_ref());
            Err(tokens.error(format!("{found} is no path of an import")))
        }
    }
}

/// The text of `edition = "2023";`. None where it is something else, which a compiler refuses.
fn edition(tokens: &mut Tokens<'_>) -> Result<Option<String>, SyntaxError> {
    let mut edition = None;
    if let Some(Token::Symbol('=')) = tokens.peek()? {
        tokens.next()?;
        if let Some(Token::Text(text)) = tokens.peek()? {
            edition = Some(text.clone());
        }
    }
    statement(tokens)?;
    Ok(edition)
}

/// Passes over a statement to its semicolon.
fn statement(tokens: &mut Tokens<'_>) -> Result<(), SyntaxError> {
    let begun = tokens.error("a statement that begins here has no `;`");
    let mut depth = 0_usize;
    while let Some(token) = tokens.next()? {
        match token {
            Token::Symbol('{' | '[' | '(') => depth += 1,
            Token::Symbol('}' | ']' | ')') => {
                depth = depth.checked_sub(1).ok_or_else(|| begun.clone())?;
            }
            Token::Symbol(';') if depth == 0 => return Ok(()),
            _ => {}
        }
        if depth > DEEPEST {
            break;
        }
    }
    Err(begun)
}

/// Passes over something with a name and braces.
fn block(tokens: &mut Tokens<'_>, of: &str) -> Result<(), SyntaxError> {
    match tokens.next()? {
        Some(Token::Name(_)) => {}
        other => {
            let found = shown(other.as_ref());
            return Err(tokens.error(format!("{found} is no name of a {of}")));
        }
    }
    expect(tokens, '{')?;
    rest_of_braces(tokens, of)
}

fn rest_of_braces(tokens: &mut Tokens<'_>, of: &str) -> Result<(), SyntaxError> {
    let begun = tokens.error(format!("a {of} that begins here has no `}}`"));
    let mut depth = 1_usize;
    while let Some(token) = tokens.next()? {
        match token {
            Token::Symbol('{') => depth += 1,
            Token::Symbol('}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(());
        }
        if depth > DEEPEST {
            return Err(tokens.error(format!("braces of a {of} go deeper than {DEEPEST}")));
        }
    }
    Err(begun)
}

fn service(tokens: &mut Tokens<'_>) -> Result<Service, SyntaxError> {
    let mut service = Service {
        name: name(tokens, "service")?,
        methods: Vec::new(),
    };
    let begun = tokens.error(format!("service `{}` has no `}}`", service.name));
    expect(tokens, '{')?;
    loop {
        match tokens.next()? {
            Some(Token::Symbol('}')) => return Ok(service),
            Some(Token::Symbol(';')) => {}
            Some(Token::Name(word)) => match &*word {
                "rpc" => service.methods.push(method(tokens)?),
                "option" => statement(tokens)?,
                _ => {
                    let what = format!("`{word}` begins nothing in a service");
                    return Err(tokens.error(what));
                }
            },
            None => return Err(begun),
            other => {
                let found = shown(other.as_ref());
                return Err(tokens.error(format!("{found} begins nothing in a service")));
            }
        }
    }
}

fn method(tokens: &mut Tokens<'_>) -> Result<Method, SyntaxError> {
    let name = name(tokens, "method")?;
    let client_streams = message(tokens)?;
    match tokens.next()? {
        Some(Token::Name(word)) if word == "returns" => {}
        other => {
            let found = shown(other.as_ref());
            return Err(tokens.error(format!("{found} stands where `returns` is expected")));
        }
    }
    let server_streams = message(tokens)?;
    match tokens.next()? {
        Some(Token::Symbol(';')) => {}
        Some(Token::Symbol('{')) => rest_of_braces(tokens, "method")?,
        other => {
            let found = shown(other.as_ref());
            return Err(tokens.error(format!("{found} stands where `;` or `{{` is expected")));
        }
    }
    Ok(Method {
        name,
        client_streams,
        server_streams,
    })
}

/// A message in parentheses. True where it comes as a stream.
fn message(tokens: &mut Tokens<'_>) -> Result<bool, SyntaxError> {
    expect(tokens, '(')?;
    let mut words = Vec::new();
    while let Some(Token::Name(word)) = tokens.peek()? {
        words.push(word.clone());
        tokens.next()?;
    }
    expect(tokens, ')')?;
    match &words[..] {
        [] => Err(tokens.error("a method lacks the name of a message")),
        // A message may be called so.
        [word, name, ..] if word == "stream" && !name.starts_with('.') => Ok(true),
        [word, ..] => Ok(word == "stream" && words.len() > 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"
        // A comment; service No {}
        edition = "2023"; /* another
        one */ option features.field_presence = IMPLICIT;
        package a . b.c ;
        import public "x/y.proto";
        import 'z.proto';
        option (some.option) = { a: "}" b: [1, 2] };
        message M { message N { string s = 1 [default = "}"]; } oneof o { int32 i = -2; } }
        enum E { A = 0; }
        extend google.protobuf.MethodOptions { optional string x = 1; }
        service One {
            option deprecated = true;
            rpc Unary(M) returns (.a.b.c.M);
            rpc Server (M) returns (stream M) { option (x) = { get: "/v1/{name}" }; }
            rpc Client ( stream M ) returns (M) {};
            rpc Both(stream .a.M) returns (stream stream);
        }
        service Two{}
    "#;

    #[test]
    fn names_are_found_and_all_else_is_passed_over() {
        let file = scan(WHOLE.as_bytes()).unwrap();
        assert_eq!(file.package, "a.b.c");
        assert_eq!(file.imports, ["x/y.proto", "z.proto"]);
        assert_eq!(file.edition.as_deref(), Some("2023"));
        assert_eq!(file.full_name("One"), "a.b.c.One");
        let names: Vec<_> = file.services.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["One", "Two"]);
        let methods: Vec<_> = file.services[0]
            .methods
            .iter()
            .map(|it| (&*it.name, it.client_streams, it.server_streams))
            .collect();
        let expected = [
            ("Unary", false, false),
            ("Server", false, true),
            ("Client", true, false),
            ("Both", true, true),
        ];
        assert_eq!(methods, expected);
        assert_eq!(scan(b"service S {}").unwrap().full_name("S"), "S");
    }

    #[test]
    fn what_does_not_parse_is_told_with_its_line() {
        let cases = [
            ("\n\nservice {}", "line 3: `{` is no name of a service"),
            (
                "service S {\nrpc A(M) M;}",
                "line 2: `M` stands where `returns` is expected",
            ),
            (
                "service S { rpc A() returns (M); }",
                "line 1: a method lacks the name of a message",
            ),
            ("service S {", "line 1: service `S` has no `}`"),
            (
                "message M { ",
                "line 1: a message that begins here has no `}`",
            ),
            ("/* x", "line 1: a comment that begins here has no end"),
            (
                "package a..b;",
                "line 1: `;` is no part of a name of a package",
            ),
            ("import x;", "line 1: `x` is no path of an import"),
            (
                "syntax = \"proto3",
                "line 1: a text that begins here has no end",
            ),
            (
                "syntax = \"proto3\"",
                "line 1: a statement that begins here has no `;`",
            ),
            ("<?php", "line 1: `<` begins nothing"),
            ("hello", "line 1: `hello` begins nothing in a .proto file"),
        ];
        for (text, error) in cases {
            assert_eq!(
                scan(text.as_bytes()).unwrap_err().to_string(),
                error,
                "{text}"
            );
        }
        let deep = format!("message M {}", "{".repeat(100));
        assert!(scan(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            _ = scan(&bytes); // most are none
        }

        #[test]
        fn no_cut_makes_it_panic(cut in 0..WHOLE.len()) {
            _ = scan(&WHOLE.as_bytes()[..cut]); // most are none
        }
    }
}
