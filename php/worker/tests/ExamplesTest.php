<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Message;
use Pronghorn\Tests\Support\Process;

/** The examples do what they say, as far as a worker can do it without its server. */
final class ExamplesTest extends TestCase
{
    public function testHello(): void
    {
        self::assertSame("Hello, you!\n", self::ask('hello', ['uri' => 'http://h/?name=you'])[0]->body);
    }

    public function testPsr7(): void
    {
        $form = [['content-type', 'application/x-www-form-urlencoded']];
        $reply = self::ask('psr7', ['method' => 'POST', 'headers' => $form], 'name=you')[0];
        self::assertSame("Hello, you!\n", $reply->body);
        self::assertSame(['text/plain'], $reply->header('content-type'));
    }

    public function testPsr15(): void
    {
        self::assertSame("Hello, you!\n", self::ask('psr15', ['uri' => 'http://h/you'])[0]->body);
        self::assertSame(404, self::ask('psr15', ['uri' => 'http://h/'])[0]->number);
    }

    public function testSlim(): void
    {
        self::assertSame("Hello, you!\n", self::ask('slim', ['uri' => 'http://h/hello/you'])[0]->body);
    }

    public function testUpload(): void
    {
        $form = Codec::form([
            ['name' => 'title', 'value' => 'x'],
            ['kind' => 1, 'name' => 'files[]', 'value' => 'a.php', 'type' => 'text/x', 'path' => __FILE__, 'size' => 5],
            ['kind' => 1, 'name' => 'files[]', 'error' => UPLOAD_ERR_NO_FILE],
        ]);
        $reply = json_decode(self::ask('upload', ['method' => 'POST', 'flags' => Native::FORM], $form)[0]->body, true);
        self::assertSame('x', $reply['title']);
        self::assertCount(1, $reply['files']);
        self::assertSame(hash_file('sha256', __FILE__), $reply['files'][0]['sha256']);
    }

    public function testStream(): void
    {
        $source = self::ask('stream', ['uri' => 'http://h/source'])[0];
        self::assertSame(Native::BODY_FILE, $source->flags);
        $count = self::ask('stream', ['uri' => 'http://h/count']);
        self::assertSame("5\n4\n3\n2\n1\nlift-off\n", implode('', array_column($count, 'body')));
    }

    /**
     * @param array<string, mixed> $fields
     * @return list<Message>
     */
    private static function ask(string $example, array $fields, string $body = ''): array
    {
        $worker = Process::started(__DIR__ . "/../../../examples/$example/worker.php");
        $worker->request($fields, $body);

        $reply = $worker->reply();
        self::assertSame('', $worker->output());

        return $reply;
    }
}
