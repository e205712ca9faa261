<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Call;
use Pronghorn\Exception;
use Pronghorn\File;
use Pronghorn\Request;
use Pronghorn\Response;
use Pronghorn\Testing\Client;
use Psr\Http\Message\ServerRequestInterface;

/** What an application has for tests of its handlers. */
final class TestingTest extends TestCase
{
    public function testARequestIsAsItWouldCome(): void
    {
        $request = Request::create(
            'PUT',
            'https://shop.test:8443/a%20b?x[]=1',
            ['X-One' => 'a', 'accept' => ['b', 'c']],
            json: ['k' => 'ü'],
            cookies: ['id' => 'a b'],
            attributes: ['tenant' => '7'],
            remoteAddress: '192.0.2.1',
        );
        self::assertSame('PUT', $request->method);
        self::assertSame('https://shop.test:8443/a%20b?x[]=1', $request->uri);
        self::assertSame(['/a%20b', 'x[]=1'], [$request->path, $request->queryString]);
        self::assertSame(['x' => ['1']], $request->query());
        self::assertSame('shop.test:8443', $request->header('Host'));
        self::assertSame(['b', 'c'], $request->headers['accept']);
        self::assertSame(['id' => 'a b'], $request->cookies);
        self::assertSame(['tenant' => '7'], $request->attributes);
        self::assertSame(['k' => 'ü'], $request->json());
        self::assertSame('application/json', $request->header('content-type'));
        self::assertSame('/a%20b?x[]=1', $request->target());
        $server = $request->server();
        self::assertSame(['on', '192.0.2.1', 'a'], [$server['HTTPS'], $server['REMOTE_ADDR'], $server['HTTP_X_ONE']]);
        self::assertSame('', Request::create()->body());
        self::assertSame('raw', \stream_get_contents(Request::create('POST', '/', body: 'raw')->stream()));
    }

    public function testForms(): void
    {
        $request = Request::create('POST', '/', form: ['a' => ['b' => '1 2'], 'c' => 3]);
        self::assertSame(['a' => ['b' => '1 2'], 'c' => '3'], $request->form());
        self::assertSame('a%5Bb%5D=1+2&c=3', $request->body());
        $photo = File::fake('photo.jpg', 'bytes', 'image/jpeg');
        $request = Request::create('POST', '/', form: ['a' => ['b' => '1']], files: [
            'photo' => $photo,
            'more' => ['x' => File::fake('docs/x.txt'), 'y' => File::fake('big', error: \UPLOAD_ERR_INI_SIZE)],
        ]);
        self::assertSame(['a' => ['b' => '1']], $request->form());
        self::assertSame('', $request->body());
        $files = $request->files();
        $photo = $files['photo'];
        self::assertSame(['photo.jpg', 'image/jpeg', 5], [$photo->name, $photo->type, $photo->size]);
        self::assertSame('bytes', \file_get_contents($photo->path()));
        self::assertSame(['x.txt', 'docs/x.txt'], [$files['more']['x']->name, $files['more']['x']->fullPath]);
        $this->expectException(Exception::class);
        $files['more']['y']->path();
    }

    public function testWhatCanBeNoRequest(): void
    {
        foreach (
            [
                [['GET', 'no-slash'], 'write `/path?query`'],
                [['GET', 'ftp://a/'], 'write `/path?query`'],
                [['GET', '/', [], 'body', ['json']], 'one body'],
                [['GET', '/', ['a' => "b\r\nc: d"]], 'no line end'],
                [['GET', '/', ["a\n" => ['b']]], 'no line end'],
                [['GET', '/', [], 'body', null, ['a' => '1']], 'one body'],
            ] as [$arguments, $why]
        ) {
            try {
                Request::create(...$arguments);
                self::fail($why);
            } catch (\ValueError $refused) {
                self::assertStringContainsString($why, $refused->getMessage());
            }
        }
    }

    public function testRepliesAreMadeInSteps(): void
    {
        $reply = Response::html('<p>')->withHeader('content-type', 'text/x')->withHeader('X-A', [1, 2])
            ->withCookie('a', 'b;c')->withCookie('gone', '', 0, '/x', 'a.test', true, false, 'None');
        self::assertSame(['content-type' => 'text/x', 'X-A' => [1, 2], 'Set-Cookie' => [
            'a=b%3Bc; Path=/; HttpOnly; SameSite=Lax',
            'gone=; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Path=/x; Domain=a.test; Secure; SameSite=None',
        ]], $reply->headers);
        self::assertSame('text/plain; charset=UTF-8', Response::text('a', 404)->headers['Content-Type']);
        foreach (
            [
                ['a b', 'x'], ['', 'x'], ['a', 'x', null, '/;'], ['a', 'x', null, '/', "a\n"],
                ['a', 'x', null, '/', '', false, true, 'lax'], ['a', 'x', null, '/', '', false, true, 'None'],
            ] as $wrong
        ) {
            try {
                Response::text('')->withCookie(...$wrong);
                self::fail(\json_encode($wrong));
            } catch (Exception) {
            }
        }
        $cookies = $reply->withCookie('c', '1', 60)->headers['Set-Cookie'];
        self::assertStringContainsString('Max-Age=60; Expires=', $cookies[2]);
    }

    public function testAClientAsksAHandler(): void
    {
        $done = [];
        $defer = static function (Request $request) use (&$done): mixed {
            Call::current()->route('json');
            Call::current()->defer(static function () use (&$done): void {
                $done[] = 'deferred';
            });

            return $request->json();
        };
        $client = new Client(static fn (Request $request): mixed => match ($request->path) {
            '/login' => Response::redirect('/')->withCookie('user', $request->form()['user']),
            '/logout' => Response::redirect('/')->withCookie('user', '', 0),
            '/stream' => (static fn (): \Generator => yield from ['a', 'b'])(),
            '/file' => Response::file(__FILE__),
            '/json' => $defer($request),
            default => 'Hello, ' . ($request->cookies['user'] ?? 'nobody'),
        });
        self::assertSame('Hello, nobody', $client->get('/')->body());
        $reply = $client->post('/login', form: ['user' => 'ada l']);
        self::assertSame([302, '/'], [$reply->status, $reply->header('location')]);
        self::assertSame('Hello, ada l', $client->get('/')->body());
        self::assertSame('Hello, bob', $client->get('/', cookies: ['user' => 'bob'])->body());
        $client->get('/logout');
        self::assertSame('Hello, nobody', $client->get('/')->body());
        self::assertSame(['a', 'b'], $client->get('/stream')->pieces);
        self::assertStringEqualsFile(__FILE__, $client->get('/file')->body());
        $reply = $client->request('PATCH', '/json', json: ['a' => 1]);
        self::assertSame(['a' => 1], $reply->json());
        self::assertSame(['json', ['deferred']], [$reply->route, $done]);
    }

    public function testAHandlerOfPsr7(): void
    {
        $client = new Client(static function (ServerRequestInterface $request): string {
            $file = $request->getUploadedFiles()['photo'] ?? null;

            return $request->getMethod() . ' ' . ($request->getParsedBody()['a'] ?? '') . ' ' . $file?->getStream();
        });
        $files = ['photo' => File::fake('a.txt', 'bytes')];
        self::assertSame('POST 1 bytes', $client->post('/', form: ['a' => '1'], files: $files)->body());
    }

    public function testWhatAHandlerThrowsIsThrown(): void
    {
        $client = new Client(static fn (Request $request) => throw new \DomainException('on purpose'));
        try {
            $client->get('/');
            self::fail('nothing was thrown');
        } catch (\DomainException) {
        }
        $this->expectException(\Pronghorn\NotAWorker::class);
        Call::current();
    }

    public function testAReplyThatNoServerSends(): void
    {
        foreach ([['a' => "b\r\nc: d"], ["a\nb" => 'c'], ['a' => ['b', "c\0"]]] as $headers) {
            $client = new Client(static fn (Request $request): Response => new Response('', 200, $headers));
            try {
                $client->get('/');
                self::fail('it was taken');
            } catch (\InvalidArgumentException $refused) {
                self::assertStringContainsString('a line end', $refused->getMessage());
            }
        }
    }

    public function testAHandlerThatNobodyCouldCall(): void
    {
        $this->expectException(\InvalidArgumentException::class);
        new Client(static fn (int $number): string => 'no');
    }
}
