<?php

declare(strict_types=1);

namespace Pronghorn\Testing;

use Pronghorn\Internal\BadResponse;
use Pronghorn\Internal\BadWorker;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\HttpExchange;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Internal\Recorder;
use Pronghorn\Request;
use Psr\Http\Server\RequestHandlerInterface;

/**
 * Asks a handler as a client would, without a server, for unit tests:
 *
 *     $client = new Pronghorn\Testing\Client($handler);
 *     $reply = $client->post('/login', form: ['user' => 'ada']);
 *     self::assertSame(302, $reply->status);
 *
 * It keeps cookies from one request to the next. What the handler throws is thrown here. What it
 * has deferred is done before the reply is returned.
 */
final class Client
{
    private readonly HttpHandler $handler;
    /** @var array<string, string> */
    private array $cookies = [];
    private int $calls = 0;

    /**
     * @param callable|RequestHandlerInterface $handler as for {@see \Pronghorn\Worker::onRequest()}
     * @param object ...$psr17 factories, as for {@see \Pronghorn\Worker::withFactories()}
     * @throws \InvalidArgumentException when a worker would not take it
     */
    public function __construct(callable|RequestHandlerInterface $handler, object ...$psr17)
    {
        $messages = new Messages(\array_values($psr17));
        try {
            $this->handler = HttpHandler::of($handler, $messages);
            if ($this->handler->wantsPsr) {
                $messages->prepare($this->handler->type);
            }
        } catch (BadWorker $problem) {
            throw new \InvalidArgumentException($problem->getMessage(), 0, $problem);
        }
        if ($this->handler->isFrontController()) {
            throw new \InvalidArgumentException(
                'A handler without a parameter reads superglobals, which only a worker fills: test it over HTTP.'
            );
        }
    }

    /** @param mixed ...$parts of {@see Request::create()}, by name */
    public function get(string $target, mixed ...$parts): Reply
    {
        return $this->request('GET', $target, ...$parts);
    }

    /** @param mixed ...$parts of {@see Request::create()}, by name */
    public function post(string $target, mixed ...$parts): Reply
    {
        return $this->request('POST', $target, ...$parts);
    }

    /** @param mixed ...$parts of {@see Request::create()}, by name */
    public function request(string $method, string $target, mixed ...$parts): Reply
    {
        $parts['cookies'] = ($parts['cookies'] ?? []) + $this->cookies;

        return $this->send(Request::create($method, $target, ...$parts));
    }

    /** A request of one's own; cookies that this client keeps are not added. */
    public function send(Request $request): Reply
    {
        $recorder = new Recorder();
        $exchange = new HttpExchange($recorder, ++$this->calls, null, $request);
        $before = Exchange::$current;
        Exchange::$current = $exchange;
        try {
            $this->handler->answer($exchange);
            while (($work = \array_shift($exchange->deferred)) !== null) {
                $work();
            }
        } finally {
            Exchange::$current = $before;
            $exchange->close();
        }
        $headers = [];
        foreach ($recorder->headers as $name => $values) {
            foreach (\is_array($values) ? $values : [$values] as $value) {
                if (\preg_match('/[\0\r\n]/', "$name$value")) {
                    $shown = \addcslashes((string) $name, "\0..\37");
                    throw new BadResponse("The header `$shown` holds a line end or a NUL byte: no server sends it.");
                }
                $headers[\strtolower((string) $name)][] = (string) $value;
            }
        }
        $this->keep($headers['set-cookie'] ?? []);

        return new Reply($recorder->status, $headers, $recorder->pieces, $recorder->route);
    }

    /** @param list<string> $cookies */
    private function keep(array $cookies): void
    {
        foreach ($cookies as $cookie) {
            [$name, $value] = \explode('=', \explode(';', $cookie, 2)[0], 2) + [1 => ''];
            if (\preg_match('/;\s*max-age=(0|-)/i', $cookie)) {
                unset($this->cookies[$name]);
            } else {
                $this->cookies[$name] = \rawurldecode($value);
            }
        }
    }
}
