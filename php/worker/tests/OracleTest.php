<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\File;
use Pronghorn\Internal\Form;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\Relay;
use Pronghorn\Request;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\SocketServer;

/**
 * Query, forms, uploads and cookies are what php-cgi makes of the same bytes, order and types
 * included.
 */
final class OracleTest extends TestCase
{
    /** @var list<string> */
    private array $temporary = [];

    private string $errorLog = '';

    protected function setUp(): void
    {
        // Limits that are exceeded are logged, as PHP does it.
        $this->errorLog = (string) ini_set('error_log', '/dev/null');
    }

    protected function tearDown(): void
    {
        ini_set('error_log', $this->errorLog);
        array_map('unlink', $this->temporary);
    }

    /** @dataProvider urlencoded */
    public function testUrlencoded(string $encoded): void
    {
        $query = strtr($encoded, ["\0" => '']);
        $php = self::php(['QUERY_STRING' => $query], 'application/x-www-form-urlencoded', $encoded);
        $request = self::request([
            'method' => 'POST',
            'uri' => "http://h/?$query",
            'headers' => [['content-type', 'application/x-www-form-urlencoded']],
        ], $encoded);

        self::assertSame($php['get'], $request->query());
        self::assertSame($php['post'], $request->form());
        self::assertSame([], $request->files());
    }

    /** @return iterable<string, array{string}> */
    public static function urlencoded(): iterable
    {
        $cases = [
            '', 'a', 'a=', '=a', '=', '&', '&&a=1&&', 'a=1', 'a=1&a=2', 'a=1=2', 'a=b+c%20d', 'a+b=1', 'a.b=1',
            'a%2eb.c=1',
            ' a=1', '%20a=1', '++a=1', 'a[]=1&a[]=2', 'a[b]=1&a[c]=2', 'a[b][c]=1&a[b][d]=2', 'a[][b]=1&a[][b]=2',
            'a[][]=1&a[][]=2',
            'a=1&a[b]=2', 'a[b]=1&a=2', 'a[]=1&a[x]=2&a[]=3', 'a[5]=x&a[]=y', 'a[-5]=x&a[]=y', 'a[01]=x&a[1]=y',
            '5=x&6[]=y', 'a[b=1',
            'a[b=1&a[c=2', 'a]b=1', '[a]=1', '[]=1', 'a[b]c=1', 'a[b]c[d]=1', 'a[[b]]=1', 'a[b[c]]=1', 'a [b]=1',
            'a[ b ]=1', 'a[b.c]=1',
            'a.b[c.d]=1', 'a[b c]=1', 'a%00b=1', 'a[%00]=1', 'a=%00', "a=x\0y&b=z", "a\0b=1&c=2", 'a=%zz&b=%4',
            'a=%C3%A9&%C3%A9=1', "\xff=\xfe",
            'a;b=1;c=2', 'a=1;b=2', "a=1\r\nb", 'a[b]=1&a[b][c]=2', 'a[b][c]=1&a[b]=2', 'a[]', 'a[][]', 'a[b][',
            'a[b].c=1', '.=1', ' =1', '_=1&.=2',
            'GLOBALS[x]=1', '__Host-x=1', '..Host-x=1', 'a[' . str_repeat('x', 300) . ']=1',
            str_repeat('a', 5000) . '=1',
            'a' . str_repeat('[x]', 63) . '=1&b=2', 'a' . str_repeat('[x]', 64) . '=1&b=2',
            'a' . str_repeat('[x]', 70) . '=1&b=2',
            implode('&', array_map(static fn (int $i) => "v$i=1", range(1, 1000))),
        ];
        foreach ($cases as $case) {
            yield substr(addcslashes($case, "\0..\37\177..\377"), 0, 60) . ' (' . strlen($case) . ')' => [$case];
        }
    }

    public function testMoreVariablesThanAllowedAreDropped(): void
    {
        $encoded = implode('&', array_map(static fn (int $i) => "v$i=1", range(1, 1100)));
        $php = self::php(['QUERY_STRING' => $encoded], 'application/x-www-form-urlencoded', $encoded);
        // What an application's error handler makes of a warning must not depend on a client.
        set_error_handler(static fn (int $_, string $message) => throw new \ErrorException($message));
        $request = self::request([
            'uri' => "http://h/?$encoded",
            'headers' => [['content-type', 'application/x-www-form-urlencoded']],
        ], $encoded);

        try {
            self::assertSame($php['get'], $request->query());
            // PHP keeps one more than it says, of a form only.
            self::assertSame(array_slice($php['post'], 0, 1000), $request->form());
        } finally {
            restore_error_handler();
        }
    }

    /** @dataProvider types */
    public function testContentTypesThatAreForms(string $type): void
    {
        $php = self::php([], $type, 'a=1');
        $request = self::request(['method' => 'POST', 'headers' => [['content-type', $type]]], 'a=1');

        self::assertSame($php['post'], $request->form());
    }

    /** @return iterable<array{string}> */
    public static function types(): iterable
    {
        $form = 'application/x-www-form-urlencoded';

        return [
            [$form], [strtoupper($form)], ["$form; charset=utf-8"], ["$form;charset=x"], ["$form , x"], ["$form x"],
            [" $form"], ["{$form}x"], ['application/json'], [''], ["text/plain; $form"],
        ];
    }

    /** @dataProvider cookies */
    public function testCookies(string $header): void
    {
        $php = self::php(['HTTP_COOKIE' => $header]);
        $request = self::request(['headers' => [['cookie', $header]]]);

        self::assertSame($php['cookie'], $request->cookies);
    }

    /** @return iterable<string, array{string}> */
    public static function cookies(): iterable
    {
        $cases = [
            '', 'a', 'a=', '=a', 'a=1', 'a=1; b=2', 'a=1;b=2', 'a=1;  b=2', "a=1;\tb=2", 'a=1; a=2', 'a=b=c', 'a=b+c',
            'a=b%20c', 'a=%2B%zz',
            'a%20b=1', 'a+b=1', 'a b=1', 'a.b=1', 'a.b=1; a_b=2', 'a_b=1; a.b=2', 'a b=1; a.b=2; a_b=3', ' a=1', 'a =1',
            'a = 1 ; b = 2 ', ';;a=1;;',
            'a[]=1; a[]=2', 'a[b]=1; a[b]=2', 'a[b]=1; a[c]=2', 'a=1; a[b]=2', 'a[b]=1; a=2', 'a[b=1; a_b=2',
            'a_b=1; a[b=2', '[a]=1', 'a]=1',
            '5=x; 6=y; 5=z', '5=x; 05=y', '__Host-a=1', '..Host-a=1', '_.Secure-a=1', '__Secure-a=1; a.b=1',
            "a=\xc3\xa9; \xff=1", 'a="quoted; b=2"', 'a="x"',
            'a,b=1,2', 'a=1, b=2', '%61=1', 'a%5Bb%5D=1', 'GLOBALS=1', str_repeat('x', 4000) . '=1',
            implode('; ', array_map(static fn (int $i) => "c$i=$i", range(1, 1001))),
            implode('; ', array_map(static fn (int $i) => "c[$i]=$i", range(1, 1001))),
        ];
        foreach ($cases as $case) {
            yield substr(addcslashes($case, "\0..\37\177..\377"), 0, 60) . ' (' . strlen($case) . ')' => [$case];
        }
    }

    /**
     * @dataProvider multipart
     * @param list<array<mixed>> $parts name and value, or name, file name, type and content
     */
    public function testMultipart(array $parts): void
    {
        $php = self::php([], 'multipart/form-data; boundary=xxBOUNDARYxx', self::body($parts));
        $form = $this->form($parts);
        $request = self::request(['method' => 'POST', 'flags' => Native::FORM], $form);

        self::assertSame($php['post'], $request->form());
        self::assertSame($php['files'], self::withContent(Form::decode($form)->uploads()));
        self::assertSame(self::normalised($php['files']), self::described($request->files()));
    }

    /** @return iterable<string, array{list<array<mixed>>}> */
    public static function multipart(): iterable
    {
        $file = static fn (
            string $name,
            string $given = 'f.txt',
            string $type = 'text/plain',
            string $content = 'abc',
        ) => [$name, $given, $type, $content];
        $cases = [
            'nothing' => [],
            'one field' => [['a', '1']],
            'fields with odd names' => [
                ['a.b', '1'], [' c d', '2'], ['e[f.g][]', '3'], ['h[i', '4'], ['[j]', '5'], ['', '6'], ['a_b', '7'],
            ],
            'a field twice' => [['a', '1'], ['a', '2']],
            'values with everything' => [['a', "\0 %41+&=\r\n\xff"], ['b', '']],
            'names with everything' => [['a%20b', '1'], ['a+b', '2'], ['a&b=c', '3'], ["\xc3\xa9", '4'], ['a;b', '5']],
            'fields nested' => [['a[b][]', '1'], ['a[b][]', '2'], ['a[][c]', '3'], ['a[][c]', '4']],
            'fields against each other' => [['a', '1'], ['a[b]', '2'], ['c[d]', '3'], ['c', '4']],
            'deep fields' => [['a' . str_repeat('[x]', 64), '1'], ['b' . str_repeat('[x]', 63), '2']],
            'a thousand fields' => array_map(static fn (int $i) => ["v$i", '1'], range(1, 1001)),
            'one file' => [$file('a')],
            'an empty file' => [$file('a', content: '')],
            'no file chosen' => [$file('a', '', 'application/octet-stream', '')],
            'no file chosen, with a type and content' => [$file('a', '', 'text/plain', 'abc')],
            'files in a list' => [$file('a[]', '1.txt'), $file('a[]', '2.txt'), $file('a[]', '', '', '')],
            'files by name' => [$file('a[x]', '1.txt'), $file('a[y]', '2.txt')],
            'files in depth' => [$file('a[x][y][]', '1.txt'), $file('a[x][y][]', '2.txt'), $file('a[x][z]', '3.txt')],
            'a list of objects' => [$file('a[][x]', '1.txt'), $file('a[][x]', '2.txt')],
            'a file twice' => [$file('a', '1.txt'), $file('a', '2.txt')],
            'a file and a list' => [$file('a', '1.txt'), $file('a[]', '2.txt')],
            'a list and a file' => [$file('a[]', '1.txt'), $file('a', '2.txt')],
            'file names of attributes' => [$file('name'), $file('a[name]'), $file('b[tmp_name]'), $file('c[d]')],
            'dots and spaces' => [$file('a.b'), $file('c d'), $file(' e'), $file('f.g[h.i]'), $file('j[ k ]')],
            'brackets never closed' => [$file('a[b'), $file('c')],
            'brackets never opened' => [$file('a]b'), $file('c]'), $file('d')],
            'brackets nested' => [$file('a[[b]]'), $file('c[d[e]]'), $file('f')],
            'fields between files that are dropped' => [
                ['a', '1'], $file('b'), ['c', '2'], $file('d[e'), ['f', '3'], $file('g'), ['h', '4'],
            ],
            'a file, then a field of its name' => [$file('a'), ['a', '1'], $file('b[c]'), ['b', '2'], ['b[c]', '3']],
            'white space in brackets' => [
                $file("a[ \t b ]"), $file('c[d][  e]'), $file('f[ ]'), $file('g[ ]'), ['a[ b ]', '1'],
            ],
            'text behind brackets' => [$file('a[b]c'), $file('d[e]f[g]'), $file('h')],
            'name begins with a bracket' => [$file('[a]'), $file('[]'), $file('b')],
            'no name at all' => [$file(''), $file('a')],
            'names with everything, files' => [$file('a%20b'), $file('a+b[c&d=e]'), $file("\xc3\xa9"), $file("\xff")],
            'number as a name' => [$file('5'), $file('6[7]')],
            'folders in the file name' => [
                $file('a', 'x/y/z.txt'), $file('b', 'C:\\x\\y.txt'), $file('c', '/'), $file('d', 'x\\y/z'),
                $file('e', '../..'),
            ],
            'file names with everything' => [
                $file('a', "\xc3\xa9.txt"), $file('b', "\xff"), $file('c', ' x '), $file('d', 'a&b=c%20'),
            ],
            'types' => [
                $file('a', type: 'text/plain; charset=utf-8'), $file('b', type: ''), $file('c', type: 'nonsense'),
                $file('d', type: 'a ; b'),
            ],
            'too large for the form' => [
                ['MAX_FILE_SIZE', '2'], $file('a'), $file('b', content: 'xy'), $file('c', content: ''),
            ],
            'limit behind the file' => [$file('a'), ['MAX_FILE_SIZE', '2'], $file('b')],
            'limit in small letters' => [['max_file_size', '2'], $file('a')],
            'limit in brackets' => [['MAX_FILE_SIZE[]', '2'], $file('a')],
            'limit of nothing' => [['MAX_FILE_SIZE', '0'], $file('a')],
            'limit below nothing' => [['MAX_FILE_SIZE', '-1'], $file('a'), $file('b', content: '')],
            'limit that is no number' => [['MAX_FILE_SIZE', 'x2'], $file('a')],
            'limit that begins with a number' => [['MAX_FILE_SIZE', ' +2e9x'], $file('a')],
            'two limits' => [['MAX_FILE_SIZE', '2'], $file('a'), ['MAX_FILE_SIZE', '200'], $file('b')],
            'limit and no file' => [['MAX_FILE_SIZE', '2'], $file('a', '', '', '')],
            'fields and files of one name' => [['a', '1'], $file('a'), ['a[b]', '2'], $file('a[b]')],
            'deep files' => [
                $file('a' . str_repeat('[x]', 62)), $file('b' . str_repeat('[x]', 63)),
                $file('c' . str_repeat('[x]', 64)), $file('d'),
            ],
            'many files' => array_map(static fn (int $i) => $file("f[$i]", "$i.txt"), range(1, 60)),
        ];
        foreach ($cases as $name => $parts) {
            yield $name => [$parts];
        }
    }

    /**
     * @param array<string, string> $environment
     * @return array{get: array<mixed>, post: array<mixed>, files: array<mixed>, cookie: array<mixed>}
     */
    private static function php(array $environment, ?string $type = null, string $body = ''): array
    {
        $environment += [
            'GATEWAY_INTERFACE' => 'CGI/1.1', 'REDIRECT_STATUS' => '200',
            'SCRIPT_FILENAME' => __DIR__ . '/fixtures/dump.php',
            'REQUEST_METHOD' => $type === null ? 'GET' : 'POST', 'QUERY_STRING' => '',
            'PATH' => (string) getenv('PATH'),
        ];
        if ($type !== null) {
            $environment += ['CONTENT_TYPE' => $type, 'CONTENT_LENGTH' => (string) strlen($body)];
        }
        $command = ['php-cgi'];
        foreach (['max_file_uploads=100', 'display_errors=0', 'log_errors=0', 'opcache.enable=0'] as $setting) {
            array_push($command, '-d', $setting);
        }
        $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes, null, $environment);
        fwrite($pipes[0], $body);
        fclose($pipes[0]);
        [, $output] = explode("\r\n\r\n", (string) stream_get_contents($pipes[1]), 2);
        self::assertSame(0, proc_close($process));

        return unserialize(base64_decode($output));
    }

    /** @param array<string, mixed> $fields */
    private static function request(array $fields, string $body = ''): Request
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        (new SocketServer($server))->request($fields, $body);

        return (new Relay(new Pipes($worker, $worker)))->next()->request;
    }

    /** @param list<array<mixed>> $parts */
    private static function body(array $parts): string
    {
        $body = '';
        foreach ($parts as $part) {
            $body .= "--xxBOUNDARYxx\r\nContent-Disposition: form-data; name=\"$part[0]\"";
            $body .= count($part) === 2 ? "\r\n" : '; filename="' . addcslashes($part[1], '\\') . "\"\r\n";
            $body .= ($part[2] ?? '') === '' ? "\r\n" : "Content-Type: $part[2]\r\n\r\n";
            $body .= ($part[3] ?? $part[1]) . "\r\n";
        }

        return "$body--xxBOUNDARYxx--\r\n";
    }

    /**
     * What the server makes of such a body.
     *
     * @param list<array<mixed>> $parts
     */
    private function form(array $parts): string
    {
        return Codec::form(array_map(fn (array $part) => count($part) === 2
            ? ['name' => $part[0], 'value' => $part[1]]
            : [
                'kind' => 1,
                'name' => $part[0],
                'value' => $part[1],
                'type' => $part[2],
                'path' => $this->file($part[3]),
                'size' => strlen($part[3]),
            ], $parts));
    }

    private function file(string $content): string
    {
        $path = (string) tempnam(sys_get_temp_dir(), 'pronghorn');
        file_put_contents($path, $content);

        return $this->temporary[] = $path;
    }

    /**
     * Paths replaced by what is there.
     *
     * @param array<mixed> $files
     * @return array<mixed>
     */
    private static function withContent(array $files): array
    {
        $content = static fn (string $path) => $path === '' ? '' : 'content:' . file_get_contents($path);
        foreach ($files as &$file) {
            if (is_string($file['tmp_name'])) {
                $file['tmp_name'] = $content($file['tmp_name']);
            } else {
                array_walk_recursive($file['tmp_name'], static function (string &$path) use ($content): void {
                    $path = $content($path);
                });
            }
        }

        return $files;
    }

    /**
     * PHP's tree per attribute as one tree of files.
     *
     * @param array<mixed> $files
     * @return array<mixed>
     */
    private static function normalised(array $files): array
    {
        $normalise = static function (array $attributes) use (&$normalise): array {
            if (!is_array($attributes['name'])) {
                return $attributes;
            }
            $tree = [];
            foreach (array_keys($attributes['name']) as $key) {
                $tree[$key] = $normalise(array_map(static fn (array $values) => $values[$key], $attributes));
            }

            return $tree;
        };

        return array_map($normalise, $files);
    }

    /**
     * @param array<File|array<mixed>> $files
     * @return array<mixed>
     */
    private static function described(array $files): array
    {
        return array_map(static fn (File|array $file) => is_array($file) ? self::described($file) : [
            'name' => $file->name,
            'full_path' => $file->fullPath,
            'type' => $file->type,
            'tmp_name' => $file->error === 0 ? 'content:' . file_get_contents($file->path()) : '',
            'error' => $file->error,
            'size' => $file->size,
        ], $files);
    }
}
