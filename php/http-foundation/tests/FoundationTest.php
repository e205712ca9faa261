<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\ClientGone;
use Pronghorn\File;
use Pronghorn\HttpFoundation\Foundation;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\Relay;
use Pronghorn\Internal\ServedFile;
use Pronghorn\Internal\WrittenBody;
use Pronghorn\Request as Asked;
use Pronghorn\Testing\Client;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\SocketServer;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;

final class FoundationTest extends TestCase
{
    public function testARequestIsWhatGlobalsWouldMake(): void
    {
        $request = Foundation::request(self::asked([
            'uri' => 'https://shop.example:8443/a%20b?x[]=1&x[]=2',
            'method' => 'PUT',
            'headers' => [['cookie', 'c=3'], ['content-type', 'application/json'], ['x-a', 'b']],
        ], '{"y":4}'));

        self::assertSame('https://shop.example:8443/a%20b?x%5B0%5D=1&x%5B1%5D=2', $request->getUri());
        self::assertSame(['1', '2'], $request->query->all('x'));
        self::assertSame('PUT', $request->getMethod());
        self::assertSame('3', $request->cookies->get('c'));
        self::assertSame('b', $request->headers->get('X-A'));
        self::assertSame('{"y":4}', $request->getContent());
        self::assertSame('127.0.0.1', $request->getClientIp());
        self::assertTrue($request->isSecure());
    }

    public function testAHandlerMayTakeTheseRequests(): void
    {
        $client = new Client(static fn (Request $request): Response|string => match ($request->getPathInfo()) {
            '/form' => new JsonResponse([$request->request->all(), $request->files->get('a')->getClientOriginalName()]),
            default => "Hello, {$request->query->get('name')}!",
        });
        self::assertSame('Hello, you!', $client->get('/?name=you')->body());
        $reply = $client->post('/form', form: ['b' => 'c'], files: ['a' => File::fake('a.txt', 'text', 'text/plain')]);
        self::assertSame([['b' => 'c'], 'a.txt'], $reply->json());
        self::assertSame('application/json', $reply->header('Content-Type'));
    }

    public function testALongBodyIsReadByWhoAsksForIt(): void
    {
        $body = str_repeat('long', 300_000);
        $path = tempnam(sys_get_temp_dir(), 'body');
        file_put_contents($path, $body);
        $request = Foundation::request(self::asked([
            'method' => 'POST',
            'flags' => Native::BODY_FILE,
            'headers' => [['content-type', 'text/plain'], ['content-length', (string) \strlen($body)]],
        ], $path));

        self::assertIsResource($request->getContent(true));
        self::assertSame($body, $request->getContent());
        unlink($path);
    }

    public function testFilesOfAForm(): void
    {
        $path = tempnam(sys_get_temp_dir(), 'upload');
        file_put_contents($path, 'content');
        $file = ['kind' => 1, 'name' => 'photos[cover]', 'value' => 'b/a.png', 'path' => $path, 'size' => 7];
        $none = ['kind' => 1, 'name' => 'none', 'value' => '', 'error' => UPLOAD_ERR_NO_FILE];
        $field = ['kind' => 0, 'name' => 'title', 'value' => 'A'];
        $asked = self::asked(['method' => 'POST', 'flags' => Native::FORM], Codec::form([$file, $none, $field]));
        $request = Foundation::request($asked);

        self::assertSame('A', $request->request->get('title'));
        self::assertNull($request->files->get('none'));
        $upload = $request->files->all('photos')['cover'];
        self::assertInstanceOf(UploadedFile::class, $upload);
        self::assertTrue($upload->isValid());
        self::assertSame('a.png', $upload->getClientOriginalName());
        self::assertSame('content', $upload->getContent());
        $moved = $upload->move(sys_get_temp_dir(), basename($path) . '.moved');
        self::assertSame('content', $moved->getContent());
        unlink($moved->getPathname());
    }

    /** HttpFoundation cuts them off, and keeps them in `getClientOriginalPath()` from 7.1 on. */
    public function testAnUploadIsMadeWithTheFoldersOfItsName(): void
    {
        $path = tempnam(sys_get_temp_dir(), 'upload');
        $file = ['kind' => 1, 'name' => 'it', 'value' => 'b/c/a.png', 'path' => $path, 'size' => 0];
        $failed = ['kind' => 1, 'name' => 'no', 'value' => 'd/a.png', 'error' => UPLOAD_ERR_PARTIAL];
        $asked = self::asked(['method' => 'POST', 'flags' => Native::FORM], Codec::form([$file, $failed]));
        $class = new class (__FILE__, '') extends UploadedFile {
            /** @var list<string> */
            public static array $names = [];

            public function __construct(string $path, string $name, mixed ...$more)
            {
                self::$names[] = $name;
                parent::__construct($path, $name, ...$more);
            }
        };
        $class::$names = [];
        $upload = Foundation::request($asked, $class::class)->files->get('it');

        self::assertSame(['b/c/a.png', 'd/a.png'], $class::$names);
        self::assertSame('a.png', $upload->getClientOriginalName());
        if (method_exists(UploadedFile::class, 'getClientOriginalPath')) {
            self::assertSame('b/c/a.png', $upload->getClientOriginalPath());
        }
        unlink($path);
    }

    public function testHeadersAndCookiesOfAReply(): void
    {
        $response = new Response('text', 404, ['X-Two' => ['a', 'b']]);
        $response->headers->setCookie(Cookie::create('c', 'd', 0, '/', null, true));
        $reply = Foundation::reply($response);

        self::assertSame(['text', 404], [$reply->body, $reply->status]);
        self::assertSame(['a', 'b'], $reply->headers['X-Two']);
        self::assertSame(['c=d; path=/; secure; httponly; samesite=lax'], $reply->headers['Set-Cookie']);
        self::assertSame('{"a":1}', Foundation::reply(new JsonResponse(['a' => 1]))->body);
        self::assertSame('', Foundation::reply(new Response(null, 204))->body);
    }

    public function testAFileIsSentByTheServerInThePartThatIsAskedFor(): void
    {
        $response = new BinaryFileResponse(__FILE__);
        $whole = Foundation::reply($response->prepare(Request::create('/')));
        self::assertInstanceOf(ServedFile::class, $whole->body);
        self::assertSame(200, $whole->status);

        $asked = Request::create('/', server: ['HTTP_RANGE' => 'bytes=2-5']);
        $part = Foundation::reply((new BinaryFileResponse(__FILE__))->prepare($asked));
        self::assertInstanceOf(ServedFile::class, $part->body);
        self::assertSame(200, $part->status, 'the server sees the range itself');
        self::assertSame([], preg_grep('/^(content-range|content-length)$/i', array_keys($part->headers)));
    }

    public function testAFileThatIsDeletedBehindItsReplyIsSentByPhp(): void
    {
        $path = tempnam(sys_get_temp_dir(), 'gone');
        file_put_contents($path, 'content');
        $response = (new BinaryFileResponse($path))->deleteFileAfterSend();
        $reply = Foundation::reply($response->prepare(Request::create('/')));

        self::assertSame('content', (string) $reply->body);
        self::assertFileDoesNotExist($path);
    }

    public function testWhatIsEchoedIsSentAsItComes(): void
    {
        $reply = Foundation::reply(new StreamedResponse(static function (): void {
            echo 'one';
            ob_start();
            echo 'two';
            ob_end_flush();
            flush();
            echo 'three';
        }, 201));
        self::assertInstanceOf(WrittenBody::class, $reply->body);
        $pieces = [];
        $level = ob_get_level();
        ($reply->body->write)(static function (string $piece) use (&$pieces): void {
            $pieces[] = $piece;
        });

        self::assertSame(['one', 'two', 'three'], $pieces);
        self::assertSame([201, $level], [$reply->status, ob_get_level()]);
    }

    public function testALoopThatEchoesEndsWhenItsClientHasLeft(): void
    {
        $echoed = 0;
        $reply = Foundation::reply(new StreamedResponse(static function () use (&$echoed): void {
            while (++$echoed < 10) {
                echo "event $echoed\n";
            }
        }));
        $level = ob_get_level();
        ob_start();
        try {
            ($reply->body->write)(static fn () => throw new ClientGone('left'));
            self::fail('ClientGone was due');
        } catch (ClientGone) {
            self::assertSame('', ob_get_clean(), 'nothing of it is output of this process');
        }
        self::assertSame([1, $level], [$echoed, ob_get_level()]);
    }

    /** @param array<string, mixed> $fields */
    private static function asked(array $fields, string $body = ''): Asked
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        stream_set_blocking($server, false);
        (new SocketServer($server))->request($fields, $body);

        return (new Relay(new Pipes($worker, $worker)))->next()->request;
    }
}
