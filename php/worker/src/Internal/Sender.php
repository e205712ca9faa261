<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;
use Pronghorn\Response;
use Pronghorn\StreamBody;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\StreamInterface;

/** Sends what a handler returned as the reply of its call. */
final class Sender
{
    /**
     * A PSR-7 body up to this size is sent at once; a longer one, or one of unknown size, in
     * pieces.
     */
    private const WHOLE = 1024 * 1024;
    private const PIECE = 64 * 1024;
    /** Reads in a row that may give nothing from a body that says it isn't at its end. */
    private const EMPTY_READS = 1000;

    public static function send(HttpExchange $exchange, mixed $result): void
    {
        if (\is_string($result)) {
            self::whole($exchange, 200, [], $result);
        } elseif ($result instanceof Response) {
            self::response($exchange, $result);
        } elseif ($result instanceof ResponseInterface) {
            self::psr($exchange, $result);
        } elseif (\is_array($result)) {
            self::response($exchange, Response::json($result));
        } elseif ($result instanceof \Traversable) {
            self::stream($exchange, 200, [], $result);
        } elseif ($result instanceof \Stringable) {
            self::whole($exchange, 200, [], (string) $result);
        } else {
            throw new \TypeError(
                'A handler returned ' . \get_debug_type($result) . '. It may return a string, an iterable of strings,'
                    . ' an array (sent as JSON), a Pronghorn\Response or a Psr\Http\Message\ResponseInterface.'
            );
        }
    }

    /**
     * A reply of PSR-7 as one of ours, which the extension sends by itself if its body is short;
     * any other as it is.
     */
    public static function ready(mixed $result): mixed
    {
        if (!$result instanceof ResponseInterface) {
            return $result;
        }
        $status = $result->getStatusCode();
        if ($status < 200 || $status > 599) {
            // Ours has none of these, and the server has the words for them.
            return $result;
        }
        [$headers, $body] = self::read($result);

        return new Response($body, $status, $headers);
    }

    private static function response(HttpExchange $exchange, Response $response): void
    {
        $body = $response->body;
        if ($body instanceof ServedFile) {
            self::whole($exchange, $response->status, $response->headers, $body->path, Native::BODY_FILE);
        } elseif ($body instanceof WrittenBody) {
            self::written($exchange, $response, $body);
        } elseif (\is_iterable($body)) {
            self::stream($exchange, $response->status, $response->headers, $body);
        } else {
            self::whole($exchange, $response->status, $response->headers, (string) $body);
        }
    }

    private static function psr(HttpExchange $exchange, ResponseInterface $response): void
    {
        [$headers, $body] = self::read($response);
        if (\is_string($body)) {
            self::whole($exchange, $response->getStatusCode(), $headers, $body);
        } else {
            self::stream($exchange, $response->getStatusCode(), $headers, $body);
        }
    }

    /**
     * Headers and body of a reply of PSR-7.
     *
     * @return array{array<array-key, list<string>>, string|iterable<mixed>} a string is sent at once
     */
    private static function read(ResponseInterface $response): array
    {
        $headers = $response->getHeaders();
        $body = $response->getBody();
        if ($body instanceof StreamBody && ($pieces = $body->untouched()) !== null) {
            return [$headers, $pieces];
        }
        // Most bodies are short. Reading one is cheaper than asking it for its size, which costs a
        // stat.
        $begun = $body->isSeekable() ? self::begin($body) : '';
        $isWhole = $body->eof();
        if (!$isWhole && $begun !== '' && \strlen($begun) < self::PIECE) {
            // Some know that they are at their end when they were asked for more.
            $begun .= $body->read(self::PIECE);
            $isWhole = $body->eof();
        }
        if ($isWhole) {
            return [$headers, $begun];
        }
        if ($begun === '' && !$body->isReadable()) {
            // A callback's, such as Laminas' CallbackStream.
            return [$headers, (string) $body];
        }
        $size = $body->getSize();
        if ($size !== null && $size <= self::WHOLE) {
            // Not from its start again: some can be rewound once.
            $begun .= self::upToWhole($body, \strlen($begun));
            if ($body->eof()) {
                return [$headers, $begun];
            }
            // A pipe says 0, and one that inflates how long it is deflated.
            $size = null;
        }
        if ($size !== null && !$response->hasHeader('Content-Length')) {
            $headers['Content-Length'] = [(string) $size];
        }

        return [$headers, self::pieces($body, $begun)];
    }

    /** Middleware may have read the body; it is meant from its start all the same. */
    private static function begin(StreamInterface $body): string
    {
        $body->rewind();

        return $body->read(self::PIECE);
    }

    /** The rest of a body of which so much was read, or enough of it for a reply in pieces. */
    private static function upToWhole(StreamInterface $body, int $read): string
    {
        $more = '';
        foreach (self::pieces($body, '') as $piece) {
            $more .= $piece;
            if ($read + \strlen($more) > self::WHOLE) {
                break;
            }
        }

        return $more;
    }

    /** @return \Generator<string> */
    private static function pieces(StreamInterface $body, string $begun): \Generator
    {
        if ($begun !== '') {
            yield $begun;
        }
        for ($empty = 0; !$body->eof(); $empty++) {
            $piece = $body->read(self::PIECE);
            if ($piece !== '') {
                $empty = 0;
            } elseif ($empty === self::EMPTY_READS) {
                throw new \RuntimeException($body::class . ' gives nothing and does not say that it is at its end.');
            }
            yield $piece;
        }
    }

    /** @param array<array-key, string|list<string>> $headers */
    private static function whole(
        HttpExchange $exchange,
        int $status,
        array $headers,
        string $body,
        int $flags = 0,
    ): void {
        if ($exchange->deferred !== []) {
            $flags |= Native::BUSY;
        }
        $printed = Output::ofRequest(whole: true);
        $exchange->beginReply();
        if ($printed !== '' || $exchange->state === Exchange::STREAMING) {
            self::behind($printed, $exchange, $status, $headers, $body, $flags);
        } else {
            $exchange->transport->reply($exchange->id, $status, $headers, $body, $flags);
        }
        $exchange->state = Exchange::DONE;
    }

    /**
     * A reply behind what was printed before it, of which the client may have some, and the head.
     *
     * @param array<array-key, string|list<string>> $headers
     */
    private static function behind(
        string $printed,
        HttpExchange $exchange,
        int $status,
        array $headers,
        string $body,
        int $flags,
    ): void {
        if ($flags & Native::BODY_FILE) {
            throw new BadResponse("A file can't be sent behind what was printed. hint: print nothing before it");
        }
        if ($exchange->state === Exchange::STREAMING) {
            $exchange->transport->chunk($exchange->id, $printed . $body, $flags);
        } else {
            $headers = self::withoutLength($headers);
            $exchange->transport->reply($exchange->id, $status, $headers, $printed . $body, $flags);
        }
    }

    /**
     * What they say of it was said of another body.
     *
     * @param array<array-key, string|list<string>> $headers
     * @return array<array-key, string|list<string>>
     */
    private static function withoutLength(array $headers): array
    {
        return \array_filter(
            $headers,
            static fn (int|string $name): bool => \strcasecmp((string) $name, 'Content-Length') !== 0,
            \ARRAY_FILTER_USE_KEY,
        );
    }

    /** Sends what a handler prints, which is too much to be kept until it returns. */
    public static function printed(HttpExchange $exchange, string $piece): void
    {
        $exchange->head ??= [200, []];
        self::put($exchange, $piece);
    }

    /**
     * @param array<array-key, string|list<string>> $headers
     * @param iterable<mixed> $pieces
     */
    private static function stream(HttpExchange $exchange, int $status, array $headers, iterable $pieces): void
    {
        $exchange->head = [$status, $headers];
        $iterator = Pieces::iterator($pieces);
        // The first piece is waited for before the head goes out: what fails until then is a
        // clean 500. Events may be minutes apart, and their reader wants to know that it is
        // connected.
        if ($pieces instanceof Events) {
            self::head($exchange, '');
        }
        for ($iterator->rewind(); $iterator->valid(); $iterator->next()) {
            if ($exchange->isGone()) {
                Pieces::abandon($iterator, new ClientGone('The client left before the reply was complete.'));
                break;
            }
            self::piece($exchange, Pieces::text($iterator->current()));
        }
        self::end($exchange);
    }

    private static function written(HttpExchange $exchange, Response $response, WrittenBody $body): void
    {
        $exchange->head = [$response->status, $response->headers];
        // Now, because the function may call ours from the inside of an output buffer.
        $printed = Output::ofRequest(whole: false);
        if ($printed !== '') {
            $exchange->head[1] = self::withoutLength($exchange->head[1]);
        }
        try {
            ($body->write)(static function (string $piece) use ($exchange, &$printed): void {
                if ($exchange->isGone()) {
                    throw new ClientGone('The client left before the reply was complete.');
                }
                self::piece($exchange, $printed . $piece);
                $printed = '';
            });
        } catch (ClientGone) {
            // There is nobody to tell.
        }
        self::whole($exchange, $exchange->head[0], $exchange->head[1], $printed);
    }

    /** All pieces are sent. */
    private static function end(HttpExchange $exchange): void
    {
        self::whole($exchange, $exchange->head[0], $exchange->head[1], '');
    }

    private static function piece(HttpExchange $exchange, string $piece): void
    {
        $printed = Output::ofRequest(whole: false);
        if ($printed !== '') {
            $piece = $printed . $piece;
            $exchange->head[1] = self::withoutLength($exchange->head[1]);
        }
        self::put($exchange, $piece);
    }

    private static function put(HttpExchange $exchange, string $piece): void
    {
        if ($exchange->state === Exchange::FRESH) {
            self::head($exchange, $piece);
        } elseif ($piece !== '') {
            $exchange->transport->chunk($exchange->id, $piece, more: true);
        }
    }

    private static function head(HttpExchange $exchange, string $piece): void
    {
        [$status, $headers] = $exchange->head;
        $exchange->beginReply();
        $exchange->transport->reply($exchange->id, $status, $headers, $piece, more: true);
        $exchange->state = Exchange::STREAMING;
    }
}
