<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Exception;
use Pronghorn\File;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\Relay;
use Pronghorn\Request;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\SocketServer;

final class RequestTest extends TestCase
{
    public function testHeaders(): void
    {
        $headers = [['x-a', '1'], ['x-b', ''], ['x-a', '2'], ['7', 'n']];
        $request = self::request(['uri' => 'http://h:81/', 'headers' => $headers]);

        self::assertSame(['host' => ['h:81'], 'x-a' => ['1', '2'], 'x-b' => [''], 7 => ['n']], $request->headers);
        self::assertSame('1', $request->header('X-A'));
        self::assertSame('h:81', $request->header('Host'));
        self::assertSame('', $request->header('x-b'));
        self::assertNull($request->header('x-c'));
        self::assertSame([], self::request(['uri' => 'http:///'])->headers);
    }

    public function testServerIsWhatScriptsFindInTheirVariables(): void
    {
        $headers = [
            ['x-many', '1'], ['cookie', 'a=1'], ['x-many', '2'], ['cookie', 'b=2'], ['content-type', 'text/plain'],
            ['proxy', 'http://evil'], ['x_real_ip', '6.6.6.6'], ['x.real.ip', '6.6.6.6'], ['7', 'n'],
        ];
        $uri = 'https://h:81/a%20b?c';
        $request = self::request(['uri' => $uri, 'started' => 1_795_297_449_250_000, 'headers' => $headers]);

        self::assertSame([
            'REQUEST_METHOD' => 'GET',
            'REQUEST_URI' => '/a%20b?c',
            'QUERY_STRING' => 'c',
            'SERVER_PROTOCOL' => 'HTTP/1.1',
            'SERVER_NAME' => 'h',
            'SERVER_PORT' => '81',
            'REQUEST_SCHEME' => 'https',
            'REMOTE_ADDR' => '127.0.0.1',
            'REQUEST_TIME' => 1_795_297_449,
            'REQUEST_TIME_FLOAT' => 1_795_297_449.25,
            'HTTPS' => 'on',
            'HTTP_HOST' => 'h:81',
            'HTTP_X_MANY' => '1, 2',
            'HTTP_COOKIE' => 'a=1; b=2',
            'CONTENT_TYPE' => 'text/plain',
            'HTTP_7' => 'n',
        ], $request->server());
        self::assertSame($request->server(), $request->server(), 'names that were seen before');
    }

    public function testLazyPropertiesLookLikeOthers(): void
    {
        $request = self::request(['headers' => [['cookie', 'a=1']]]);
        self::assertSame('1', $request->cookies['a'] ?? null);
        self::assertTrue(isset($request->method, $request->headers['cookie'], $request->cookies['a']));
        self::assertFalse(isset($request->cookies['b']));
        self::assertFalse(isset($request->frame));
        self::assertFalse(isset($request->nothing));
        self::assertFalse(empty($request->path));
        self::assertSame('GET', (clone $request)->method);
    }

    public function testWhatThereIsNotIsAnError(): void
    {
        $this->expectException(\Error::class);
        $this->expectExceptionMessage('Undefined property: Pronghorn\Request::$methd');
        self::request([])->methd;
    }

    /** @dataProvider properties */
    public function testNothingCanBeChanged(string $property): void
    {
        $request = self::request([]);
        // Before and after it was read.
        foreach ([1, 2] as $_) {
            try {
                $request->$property = 'x';
                self::fail();
            } catch (\Error $error) {
                self::assertStringContainsString('readonly', $error->getMessage());
            }
            $request->$property;
        }
    }

    /** @return iterable<array{string}> */
    public static function properties(): iterable
    {
        return [
            ['method'], ['uri'], ['path'], ['queryString'], ['protocol'], ['remoteAddress'], ['headers'], ['cookies'],
            ['attributes'],
        ];
    }

    public function testADumpShowsTheRequest(): void
    {
        $shown = print_r(self::request(['uri' => 'http://h/p?q', 'headers' => [['x-a', '1']]]), true);
        foreach (['[method] => GET', '[path] => /p', '[queryString] => q', '[x-a] => Array'] as $part) {
            self::assertStringContainsString($part, $shown);
        }
    }

    public function testTargets(): void
    {
        $targets = [
            'http://h/' => ['/', '', '/'],
            'http://h/?' => ['/', '', '/?'],
            'http://h/a?b?c' => ['/a', 'b?c', '/a?b?c'],
            'http:///a' => ['/a', '', '/a'],
            'https://[::1]:5/a//b/../c' => ['/a//b/../c', '', '/a//b/../c'],
        ];
        foreach ($targets as $uri => $expected) {
            $request = self::request(['uri' => $uri]);
            self::assertSame($uri, $request->uri);
            self::assertSame($expected, [$request->path, $request->queryString, $request->target()]);
        }
    }

    public function testJson(): void
    {
        self::assertSame(['a' => [1.5, null]], self::request([], '{"a":[1.5,null]}')->json());
        $this->expectException(\JsonException::class);
        self::request([], '{')->json();
    }

    public function testEachStreamStandsAtItsStart(): void
    {
        $request = self::request([], 'body');
        self::assertSame('body', stream_get_contents($request->stream()));
        self::assertSame('body', stream_get_contents($request->stream()));
        self::assertSame('body', $request->body());
    }

    public function testABodyInAFile(): void
    {
        $file = tmpfile();
        fwrite($file, '{"a":1}');
        $request = self::request(['flags' => Native::BODY_FILE], stream_get_meta_data($file)['uri']);
        self::assertSame('{"a":1}', $request->body());
        self::assertSame(['a' => 1], $request->json());
        self::assertSame('{"a":1}', stream_get_contents($request->stream()));
    }

    public function testAFormInAFile(): void
    {
        $file = tmpfile();
        fwrite($file, 'a=1');
        $headers = [['content-type', 'application/x-www-form-urlencoded']];
        $path = stream_get_meta_data($file)['uri'];
        $request = self::request(['flags' => Native::BODY_FILE, 'headers' => $headers], $path);
        self::assertSame(['a' => '1'], $request->form());
    }

    public function testFilesAreTheSameEachTime(): void
    {
        $request = self::request(['flags' => Native::FORM], Codec::form([
            ['kind' => 1, 'name' => 'f', 'value' => 'x.txt', 'path' => '/tmp/x', 'size' => 1],
        ]));
        self::assertSame($request->files()['f'], $request->files()['f']);
        self::assertSame([], $request->form());
    }

    public function testAFileMovesAndSaysWhereItIs(): void
    {
        $folder = sys_get_temp_dir() . '/pronghorn-' . getmypid();
        mkdir($folder);
        $from = (string) tempnam($folder, 'upload');
        chmod($from, 0600);
        file_put_contents($from, 'content');
        $file = self::file(['path' => $from, 'size' => 7]);
        self::assertSame($from, $file->path());
        $file->moveTo("$folder/moved");
        self::assertSame("$folder/moved", $file->path());
        self::assertSame('content', file_get_contents("$folder/moved"));
        self::assertSame(0666 & ~umask(), fileperms("$folder/moved") & 0777);
        self::assertFileDoesNotExist($from);
        $file->moveTo("$folder/again");
        self::assertFileExists("$folder/again");
        try {
            $file->moveTo("$folder/no/such/folder");
            self::fail();
        } catch (Exception $failed) {
            self::assertStringContainsString('No such file or directory', $failed->getMessage());
        } finally {
            unlink("$folder/again");
            rmdir($folder);
        }
    }

    public function testAFailedUploadHasNoPath(): void
    {
        $file = self::file(['value' => 'x.txt', 'error' => UPLOAD_ERR_INI_SIZE]);
        self::assertSame(['x.txt', UPLOAD_ERR_INI_SIZE, 0], [$file->name, $file->error, $file->size]);
        $this->expectException(Exception::class);
        $file->path();
    }

    /** @param array<string, mixed> $fields */
    private static function request(array $fields, string $body = ''): Request
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        (new SocketServer($server))->request($fields, $body);

        return (new Relay(new Pipes($worker, $worker)))->next()->request;
    }

    /** @param array<string, mixed> $entry */
    private static function file(array $entry): File
    {
        $form = Codec::form([$entry + ['kind' => 1, 'name' => 'f', 'value' => 'f.txt']]);

        return self::request(['flags' => Native::FORM], $form)->files()['f'];
    }
}
