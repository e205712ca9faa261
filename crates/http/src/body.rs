//! A request's body on its way to a worker: read before a worker is taken, so that a slow client
//! holds none.
//!
//! Small bodies stay in memory, longer ones and uploaded files go to spool files; forms in
//! multipart are taken apart while they arrive.

use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pronghorn_base::LogThrottle;
use pronghorn_form::multipart::{Event, Kind, Parser, Part};
use pronghorn_form::{
    Boundary, ContentType, Entry, Form, Limits as FormLimits, UploadError, tree, urlencoded,
};
use pronghorn_pool::{
    Body as CallBody, BodyStream, Spool, SpoolClient, SpoolError, SpoolFile, Unencodable,
};
use pronghorn_serve::{BodyError, Charge, Exchange, PeerAddress, Request, UNCOUNTED};
use pronghorn_wire::Form as ForeignForm;
use pronghorn_wire::native::BodyKind;

/// A body up to this length stays in memory.
const IN_MEMORY: usize = 256 << 10;
/// The memory that an entry of a form takes beside its texts.
const ENTRY: usize = 128;
/// What is written to a spool file at a time.
const SPOOL_WRITE: usize = 256 << 10;

/// How bodies are taken.
#[derive(Debug, Clone)]
pub struct BodySettings {
    /// A longer body is answered 413.
    pub max_size: u64,
    /// Forms reach PHP unparsed.
    pub raw: bool,
    /// A worker gets what is no form as it comes, and not when all of it is there.
    pub stream: bool,
    pub forms: FormLimits,
    /// Where long bodies are kept.
    pub spool: Arc<Spool>,
    /// Where uploaded files are kept.
    pub uploads: Arc<Spool>,
    /// Endings of uploaded files that are refused, in lower case with their dot.
    pub forbid: Vec<String>,
    /// The only file extensions that are accepted; empty accepts all.
    pub allow: Vec<String>,
}

/// A body that has arrived.
#[derive(Debug, Default)]
pub(crate) enum RequestBody {
    #[default]
    Empty,
    Bytes(Bytes),
    /// In a file that the worker may read, move or remove.
    Spooled(Arc<SpoolFile>),
    /// A urlencoded form, as it came.
    Urlencoded(Bytes),
    /// A form in multipart. The files are kept until the call is over.
    Form {
        form: Form,
        _files: Vec<SpoolFile>,
    },
    /// Not yet here: the worker asks for it.
    Stream(BodyStream),
}

impl RequestBody {
    /// Of one that is passed on as it came; `None` where there is none.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) | Self::Urlencoded(bytes) => Some(bytes.len() as u64),
            Self::Spooled(file) => Some(file.len()),
            Self::Empty | Self::Stream(_) | Self::Form { .. } => None,
        }
    }

    /// What tells it from another one, without reading files.
    pub(crate) fn identify(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Empty | Self::Stream(_) => {}
            Self::Bytes(bytes) | Self::Urlencoded(bytes) => bytes.hash(hasher),
            Self::Spooled(file) => file.len().hash(hasher),
            Self::Form { form, .. } => {
                for entry in &form.entries {
                    match entry {
                        Entry::Field { name, value } => (name, value).hash(hasher),
                        Entry::File(file) => (&file.name, &file.filename, file.size).hash(hasher),
                    }
                }
            }
        }
    }
}

/// A body that is not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The client has left; there is nobody to answer.
    Gone,
    Refused {
        status: u16,
        why: String,
    },
}

impl NotTaken {
    fn refused(status: u16, why: impl Into<String>) -> Self {
        Self::Refused {
            status,
            why: why.into(),
        }
    }
}

impl From<BodyError> for NotTaken {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Gone => Self::Gone,
            BodyError::TooSlow => Self::refused(408, error.to_string()),
            BodyError::Malformed(_) => Self::refused(400, error.to_string()),
            BodyError::TooLarge(_) => Self::refused(413, error.to_string()),
            BodyError::Refused(refusal) => Self::refused(refusal.status(), refusal.to_string()),
        }
    }
}

impl From<SpoolError> for NotTaken {
    fn from(error: SpoolError) -> Self {
        let why = error.with_cause();
        static NOT_STORED: LogThrottle = LogThrottle::new();
        if let Some(requests) = NOT_STORED.should_log() {
            tracing::error!(target: "http", requests, "a request's body can't be stored: {why}");
        }
        Self::refused(503, "there is no space for the body at the moment")
    }
}

/// A body that was read whole.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) body: RequestBody,
    /// How long it was.
    pub(crate) read: u64,
    /// For what is in memory.
    pub(crate) held: Charge,
}

impl Collected {
    /// One of which nothing was read.
    pub(crate) fn of(body: RequestBody) -> Self {
        Self {
            body,
            read: 0,
            held: Charge::default(),
        }
    }
}

/// Reads the whole body.
pub(crate) async fn collect(
    request: &Request,
    exchange: &mut dyn Exchange,
    settings: &BodySettings,
) -> Result<Collected, NotTaken> {
    if request.head.body_len() == Some(0) {
        return Ok(Collected::of(empty(request, settings)));
    }
    check_announced(request, settings)?;
    let mut source = Source {
        exchange,
        most: settings.max_size,
        read: 0,
        held: Charge::default(),
        address: request.peer.address,
        client: None,
    };
    let body = match form_kind(request, settings)? {
        ContentType::Multipart(boundary) => {
            // In a place of its own: it would make the future of each body several times as long.
            Box::pin(form_body(&mut source, &boundary, settings)).await?
        }
        ContentType::Urlencoded => urlencoded_body(&mut source, settings).await?,
        ContentType::Other => raw_body(&mut source, settings).await?,
    };
    Ok(Collected {
        body,
        read: source.read,
        held: source.held,
    })
}

/// A request without a body. A form may have no fields; the official packages want to be told that
/// it was one.
pub(crate) fn empty(request: &Request, settings: &BodySettings) -> RequestBody {
    match form_kind(request, settings) {
        Ok(ContentType::Urlencoded) => RequestBody::Urlencoded(Bytes::new()),
        _ => RequestBody::Empty,
    }
}

fn form_kind(request: &Request, settings: &BodySettings) -> Result<ContentType, NotTaken> {
    match request.head.fields().get("content-type") {
        Some(value) if !settings.raw => {
            ContentType::parse(value).map_err(|error| NotTaken::refused(400, error.to_string()))
        }
        _ => Ok(ContentType::Other),
    }
}

/// Whether a worker is to read this request's body as it comes. Forms are taken apart here, so they
/// have to be complete.
pub(crate) fn is_streamed(request: &Request, settings: &BodySettings) -> bool {
    settings.stream && matches!(form_kind(request, settings), Ok(ContentType::Other))
}

/// A body that announces more than it may have.
pub(crate) fn check_announced(request: &Request, settings: &BodySettings) -> Result<(), NotTaken> {
    let announced = request.head.body_len();
    if announced.is_some_and(|len| len > settings.max_size) {
        return Err(too_large(settings.max_size));
    }
    Ok(())
}

type Client = Option<Arc<dyn SpoolClient>>;

/// The pieces of a body, no more than may be.
struct Source<'a> {
    exchange: &'a mut dyn Exchange,
    most: u64,
    read: u64,
    held: Charge,
    address: PeerAddress,
    client: Client,
}

impl Source<'_> {
    /// Writes a piece to a file: with others, as long as there is memory for them. `beside` is in
    /// memory, too.
    async fn store(
        &mut self,
        file: &mut SpoolWriter,
        piece: &[u8],
        beside: usize,
    ) -> Result<(), NotTaken> {
        file.buffer.extend_from_slice(piece);
        self.holds(beside + file.buffer.capacity());
        let has_room = self.held.has_room();
        let most = if has_room { SPOOL_WRITE } else { UNCOUNTED };
        if file.buffer.len() >= most {
            file.flush().await?;
            if !has_room {
                file.buffer = Vec::new();
            }
            self.holds(beside + file.buffer.capacity());
        }
        Ok(())
    }

    /// So much of it is in memory.
    fn holds(&mut self, bytes: usize) {
        if self.held.is_none() && bytes > self.exchange.uncounted() {
            self.held = self.exchange.charge();
        }
        self.held.set(bytes);
    }

    /// The client that goes when its bodies take too much of the disk.
    fn client(&mut self) -> Client {
        if self.client.is_none() {
            self.client = self.exchange.charge().client(self.address);
        }
        self.client.clone()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, NotTaken> {
        self.held.fits().await;
        let Some(piece) = self.exchange.body().await? else {
            return Ok(None);
        };
        self.read += piece.len() as u64;
        if self.read > self.most {
            Err(too_large(self.most))
        } else {
            Ok(Some(piece))
        }
    }
}

pub(crate) fn too_large(most: u64) -> NotTaken {
    NotTaken::refused(
        413,
        format!("the body is too large: at most {most} bytes are taken"),
    )
}

async fn raw_body(
    source: &mut Source<'_>,
    settings: &BodySettings,
) -> Result<RequestBody, NotTaken> {
    let Some(first) = source.next().await? else {
        return Ok(RequestBody::Empty);
    };
    source.holds(first.len());
    let Some(second) = source.next().await? else {
        return Ok(RequestBody::Bytes(first));
    };
    let mut body = BytesMut::from(first);
    body.extend_from_slice(&second);
    source.holds(body.len());
    while body.len() <= IN_MEMORY && source.held.has_room() {
        match source.next().await? {
            Some(piece) => body.extend_from_slice(&piece),
            None => return Ok(RequestBody::Bytes(body.freeze())),
        }
        source.holds(body.len());
    }
    Box::pin(spooled_body(source, body, settings)).await
}

/// A body that is too long for memory, and what there is of it.
async fn spooled_body(
    source: &mut Source<'_>,
    begun: BytesMut,
    settings: &BodySettings,
) -> Result<RequestBody, NotTaken> {
    let client = source.client();
    let mut file = SpoolWriter::create(&settings.spool, "body", client).await?;
    file.buffer = begun.into();
    file.flush().await?;
    file.buffer = Vec::new();
    source.holds(0);
    while let Some(piece) = source.next().await? {
        source.store(&mut file, &piece, 0).await?;
    }
    Ok(RequestBody::Spooled(Arc::new(file.finish().await?)))
}

async fn urlencoded_body(
    source: &mut Source<'_>,
    settings: &BodySettings,
) -> Result<RequestBody, NotTaken> {
    let mut body = BytesMut::new();
    while let Some(piece) = source.next().await? {
        if body.len() + piece.len() > settings.forms.field_bytes {
            let limit = settings.forms.field_bytes;
            return Err(NotTaken::refused(
                413,
                format!("a urlencoded form may have {limit} bytes"),
            ));
        }
        body.extend_from_slice(&piece);
        source.holds(body.len());
    }
    // What counts as malformed depends on who parses it: the codec's rules come when it is written.
    urlencoded::check(&body, urlencoded::Rules::Php, &settings.forms)
        .map_err(|error| NotTaken::refused(400, error.to_string()))?;
    Ok(RequestBody::Urlencoded(body.freeze()))
}

async fn form_body(
    source: &mut Source<'_>,
    boundary: &Boundary,
    settings: &BodySettings,
) -> Result<RequestBody, NotTaken> {
    let mut parser = Parser::new(boundary, settings.forms);
    let malformed =
        |error: pronghorn_form::multipart::Error| NotTaken::refused(400, error.to_string());
    let (mut form, mut files) = (Form::default(), Vec::new());
    let mut open = None;
    let mut held = 0;
    while let Some(piece) = source.next().await? {
        let mut input = &piece[..];
        while let Some(event) = parser.next(&mut input).map_err(malformed)? {
            match event {
                Event::PartBegin(part) => {
                    held += part.kept() + ENTRY;
                    let client = source.client();
                    open = Some(Open::begin(part, settings, client).await?);
                }
                Event::Data(data) => match &mut open {
                    Some(Open::Field(_, value)) => {
                        value.extend_from_slice(data);
                        held += data.len();
                    }
                    Some(Open::File(_, file)) => source.store(file, data, held).await?,
                    Some(Open::Dropped(..)) | None => {}
                },
                Event::PartEnd => {
                    if let Some(open) = open.take() {
                        form.entries.push(open.end(&mut files).await?);
                    }
                }
                Event::End => {}
            }
        }
        let waiting = match &open {
            Some(Open::File(_, file)) => file.buffer.capacity(),
            Some(Open::Field(..) | Open::Dropped(..)) | None => 0,
        };
        source.holds(held + waiting);
    }
    parser.finish().map_err(malformed)?;
    Ok(RequestBody::Form {
        form,
        _files: files,
    })
}

/// A part whose content is arriving.
enum Open {
    Field(Part, Vec<u8>),
    File(Part, SpoolWriter),
    /// A file that is not kept.
    Dropped(Part, UploadError),
}

impl Open {
    async fn begin(part: Part, settings: &BodySettings, client: Client) -> Result<Self, NotTaken> {
        Ok(match part.kind() {
            Kind::Field => Self::Field(part, Vec::new()),
            Kind::EmptyInput => Self::Dropped(part, UploadError::NoFile),
            Kind::File if !settings.takes(&part) => Self::Dropped(part, UploadError::Extension),
            Kind::File => Self::File(
                part,
                SpoolWriter::create(&settings.uploads, "upload", client).await?,
            ),
        })
    }

    async fn end(self, files: &mut Vec<SpoolFile>) -> Result<Entry, NotTaken> {
        Ok(match self {
            Self::Field(part, value) => part.into_field(value),
            Self::Dropped(part, error) => part.into_failed(error),
            Self::File(part, file) => {
                let file = file.finish().await?;
                let path = file.path().unwrap_or_else(|| "".as_ref()).to_owned();
                let entry = part.into_file(file.len(), path);
                files.push(file);
                entry
            }
        })
    }
}

impl BodySettings {
    /// By the ending of the client's name for it, as RoadRunner does: a convenience, no safeguard.
    /// What keeps an uploaded file from being run is where it lies.
    fn takes(&self, part: &Part) -> bool {
        let name = part.filename.as_deref().unwrap_or_default();
        let listed = |list: &[String], name: &[u8]| {
            let ending = memchr::memrchr(b'.', name)
                .map(|dot| String::from_utf8_lossy(&name[dot..]).to_ascii_lowercase());
            list.contains(&ending.unwrap_or_default())
        };
        // Some applications, and Windows, leave out what is trimmed here.
        let end = name.iter().rposition(|byte| !b". ".contains(byte));
        let trimmed = &name[..end.map_or(0, |last| last + 1)];
        (self.allow.is_empty() || listed(&self.allow, name))
            && ![name, trimmed]
                .iter()
                .any(|name| listed(&self.forbid, name))
    }
}

/// Writes a spool file off the I/O thread, a good piece at a time.
struct SpoolWriter {
    /// Away while a piece is written.
    file: Option<SpoolFile>,
    /// Bytes that are written next.
    buffer: Vec<u8>,
}

impl SpoolWriter {
    async fn create(
        spool: &Arc<Spool>,
        what: &'static str,
        client: Client,
    ) -> Result<Self, NotTaken> {
        let spool = spool.clone();
        let mut file = on_file_thread(move || spool.named(what)).await??;
        file.hold_for(client);
        Ok(Self {
            file: Some(file),
            buffer: Vec::new(),
        })
    }

    async fn flush(&mut self) -> Result<(), NotTaken> {
        let Some(mut file) = self.file.take() else {
            return Err(NotTaken::Gone);
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = on_file_thread(move || {
            file.append(&buffer)?;
            buffer.clear();
            Ok::<_, SpoolError>((file, buffer))
        });
        let (file, buffer) = written.await??;
        self.file = Some(file);
        self.buffer = buffer;
        Ok(())
    }

    async fn finish(mut self) -> Result<SpoolFile, NotTaken> {
        self.flush().await?;
        self.file.ok_or(NotTaken::Gone)
    }
}

async fn on_file_thread<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, NotTaken> {
    // Fails only when the runtime ends, and then the connection does, too.
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| NotTaken::Gone)
}

/// How a body goes to a worker of our own SDK.
pub(crate) fn for_native(body: &RequestBody) -> Result<(CallBody, BodyKind), Unencodable> {
    Ok(match body {
        RequestBody::Empty => (CallBody::Empty, BodyKind::Bytes),
        RequestBody::Stream(stream) => (CallBody::Stream(stream.clone()), BodyKind::Stream),
        RequestBody::Bytes(bytes) | RequestBody::Urlencoded(bytes) => {
            (CallBody::Bytes(bytes.clone()), BodyKind::Bytes)
        }
        RequestBody::Spooled(file) => {
            let path = file
                .path()
                .map(|path| path.as_os_str().as_bytes())
                .unwrap_or_default();
            (
                CallBody::Bytes(Bytes::copy_from_slice(path)),
                BodyKind::File,
            )
        }
        RequestBody::Form { form, .. } => {
            let mut section = Vec::new();
            pronghorn_form::native::write(form, &mut section)
                .map_err(|error| Unencodable::Request(error.to_string()))?;
            (CallBody::Bytes(section.into()), BodyKind::Form)
        }
    })
}

/// How a body goes to a script: PHP takes it apart itself.
pub(crate) fn for_script(body: &RequestBody) -> Result<CallBody, Unencodable> {
    Ok(match body {
        RequestBody::Empty => CallBody::Empty,
        RequestBody::Bytes(bytes) | RequestBody::Urlencoded(bytes) => {
            CallBody::Bytes(bytes.clone())
        }
        RequestBody::Spooled(file) => CallBody::File(file.clone()),
        RequestBody::Form { .. } | RequestBody::Stream(_) => {
            let why = "bodies of scripts are complete and as they came";
            return Err(Unencodable::Pool(why.to_owned()));
        }
    })
}

/// How a body goes to a worker of the official packages: a tree for a form, else as it came.
pub(crate) struct Foreign {
    pub(crate) body: CallBody,
    parsed: bool,
    uploads: Option<Vec<u8>>,
}

impl Foreign {
    pub(crate) fn form(&self) -> ForeignForm<'_> {
        ForeignForm {
            parsed: self.parsed,
            uploads: self.uploads.as_deref(),
        }
    }
}

pub(crate) fn for_foreign(body: &RequestBody, limits: &FormLimits) -> Result<Foreign, Unencodable> {
    let raw = |body| Foreign {
        body,
        parsed: false,
        uploads: None,
    };
    Ok(match body {
        RequestBody::Empty => raw(CallBody::Empty),
        RequestBody::Stream(_) => {
            return Err(Unencodable::Pool(
                "the pool's workers are of RoadRunner's packages, which can't take a body as it \
                 comes: `request_body: stream` needs pronghorn/worker"
                    .to_owned(),
            ));
        }
        RequestBody::Bytes(bytes) => raw(CallBody::Bytes(bytes.clone())),
        RequestBody::Spooled(file) => raw(CallBody::File(file.clone())),
        RequestBody::Urlencoded(bytes) => {
            let mut fields = Vec::new();
            tree::write_urlencoded(bytes, limits, &mut fields)
                .map_err(|error| Unencodable::Request(error.to_string()))?;
            Foreign {
                body: CallBody::Bytes(fields.into()),
                parsed: true,
                uploads: None,
            }
        }
        RequestBody::Form { form, .. } => {
            let (mut fields, mut uploads) = (Vec::new(), Vec::new());
            tree::write_fields(form, limits, &mut fields)
                .and_then(|()| tree::write_uploads(form, limits, &mut uploads))
                .map_err(|error| Unencodable::Request(error.to_string()))?;
            Foreign {
                body: CallBody::Bytes(fields.into()),
                parsed: true,
                uploads: Some(uploads),
            }
        }
    })
}
