--TEST--
A session that the server keeps: what it is asked, and answers that make no sense
--EXTENSIONS--
pronghorn
session
--SKIPIF--
<?php
$is_valgrind = getenv('USE_ZEND_ALLOC') === '0' && !str_contains((string) getenv('LD_PRELOAD'), 'asan');
if ($is_valgrind) die('skip valgrind makes each process take seconds');
?>
--FILE--
<?php
// The test is the server; a process of its own asks.
$server = stream_socket_server('tcp://127.0.0.1:0');
$address = 'tcp://' . stream_socket_get_name($server, false);

function ask(string $code): array
{
    global $address;
    preg_match('~/\S+/pronghorn\.so~', file_get_contents('/proc/self/maps'), $extension);
    $command = [PHP_BINARY, '-n', '-d', "extension=$extension[0]"];
    $ini = [
        'session.save_handler=pronghorn', 'session.save_path=kept', 'session.use_cookies=0', 'session.cache_limiter=',
        'session.use_strict_mode=0', 'display_errors=1', 'html_errors=0', 'log_errors=0',
    ];
    foreach ($ini as $setting) {
        array_push($command, '-d', $setting);
    }
    array_push($command, '-r', $code);
    $env = ['PRONGHORN_SESSIONS' => "other\nKept", 'RR_RPC' => $address] + getenv();
    $process = proc_open($command, [1 => ['pipe', 'w']], $pipes, null, $env);

    return [$process, $pipes[1]];
}

/** @return array{string, array<string, mixed>, int}|null method, argument, number of the call */
function asked($client): ?array
{
    $head = exactly($client, 20);
    if ($head === '') {
        return null;
    }
    $is = unpack('Cwords/Cflags/Vlength/Vsum/vstream/Vnumber/Vname', $head);
    $is['sum'] === crc32(substr($head, 0, 6)) || print("sum?\n");
    $payload = exactly($client, $is['length']);

    return [substr($payload, 0, $is['name']), json_decode(substr($payload, $is['name']), true), $is['number']];
}

function exactly($client, int $length): string
{
    for ($bytes = ''; strlen($bytes) < $length; $bytes .= $more) {
        $more = fread($client, $length - strlen($bytes));
        if ($more === '' || $more === false) {
            return '';
        }
    }

    return $bytes;
}

function frame(int $flags, int $number, string $method, string $body): string
{
    $head = pack('CCV', 0x15, $flags, strlen($method . $body));

    return $head . pack('VvVV', crc32($head), 0, $number, strlen($method)) . $method . $body;
}

$visit = 'session_id("abc"); session_start() && print($_SESSION["n"] ?? "new"); ';
$kept = '{"token":5,"found":true,"data":"' . base64_encode('n|i:6;') . '"';
$writes_twice = 'session_set_save_handler(new class extends SessionHandler {
    function write($id, $data): bool { return parent::write($id, $data) && parent::write($id, "n|i:8;"); }
});';
$visits = [
    'changed' => [$visit . '$_SESSION["n"] = 7;', ["$kept}"]],
    'refused' => [$visit . '$_SESSION["n"] = 7;', ["$kept}", null]],
    'unchanged' => [$visit, ["$kept}"]],
    'unchanged and young' => [$visit, ["$kept,\"young\":true}"]],
    'twice' => [$writes_twice . $visit . '$_SESSION["n"] = 7;', ["$kept}"]],
];
foreach ($visits as $name => [$code, $answers]) {
    echo "-- $name: ";
    [$process, $output] = ask($code);
    $client = stream_socket_accept($server, 10);
    // Byte by byte, in two pieces, and at once.
    for ($calls = ''; ($asked = asked($client)) !== null; $calls .= $method . ' ' . json_encode($argument) . "\n") {
        [$method, $argument, $number] = $asked;
        unset($argument['process'], $argument['started']);
        isset($argument['data']) && $argument['data'] = base64_decode($argument['data']);
        $answer = $answers === [] ? '{}' : array_shift($answers);
        $frame = $answer === null ? frame(0x48, $number, $method, 'sessions: no') : frame(0x08, $number, $method, $answer);
        foreach (str_split($frame, [1, 15, 9999][strlen($calls) % 3]) as $piece) {
            fwrite($client, $piece);
        }
    }
    // Releases of PHP name the end of a request differently.
    preg_match_all('/^\d|server: [^\n]*(?= in )|Failed to write session data/m', stream_get_contents($output), $said);
    echo implode(', ', $said[0]), "\n", $calls;
    proc_close($process);
}

$answers = [
    'refused' => static fn (int $n): string => frame(0x48, $n, 'session.Open', 'sessions: no such storage: kept'),
    'locked' => static fn (int $n): string => frame(0x08, $n, '', '{"holder":{"process":4711,"doing":"GET /","seconds":1.5}}'),
    'locked by what is none' => static fn (int $n): string => frame(0x08, $n, '', '{"holder":7}'),
    'no frame' => static fn (int $n): string => "HTTP/1.1 400 Bad Request\r\n\r\n",
    'a length' => static fn (int $n): string => ($h = pack('CCV', 0x15, 8, 0xFFFFFFF0)) . pack('VvVV', crc32($h), 0, $n, 0),
    'words' => static fn (int $n): string => ($h = pack('CCV', 0x13, 8, 0)) . pack('Vv', crc32($h), 0),
    'a name' => static fn (int $n): string => ($h = pack('CCV', 0x15, 8, 2)) . pack('VvVV', crc32($h), 0, $n, 9) . '{}',
    'another call' => static fn (int $n): string => frame(0x08, $n + 1, '', '{}'),
    'no JSON' => static fn (int $n): string => frame(0x08, $n, '', '{"token"'),
    'no object' => static fn (int $n): string => frame(0x08, $n, '', '7'),
    'other types' => static fn (int $n): string => frame(0x08, $n, '', '{"token":"x","data":[1],"found":3}'),
    'nothing' => static fn (int $n): string => '',
];
foreach ($answers as $name => $answer) {
    [$process, $output] = ask('session_id("abc"); session_start(["read_and_close" => true]) && print("empty");');
    $client = stream_socket_accept($server, 10);
    [, , $number] = asked($client);
    fwrite($client, $answer($number));
    fclose($client);
    preg_match('/session_start\(\): (The session[^\n]*?)(?: in Command)|empty/', stream_get_contents($output), $said);
    echo $name, ': ', $said[1] ?? $said[0] ?? '?', "\n";
    proc_close($process);
}
fclose($server);
[$process, $output] = ask('session_id("abc"); @session_start() || print(error_get_last()["message"]);');
echo stream_get_contents($output), "\n";
?>
--EXPECT--
-- changed: 6
session.Open {"storage":"Kept","id":"abc","doing":"a script","wait":30000,"ttl":1440}
session.Write {"storage":"Kept","id":"abc","token":5,"ttl":1440,"data":"n|i:7;","is_last":true}
-- refused: 6, server: sessions: no, Failed to write session data
session.Open {"storage":"Kept","id":"abc","doing":"a script","wait":30000,"ttl":1440}
session.Write {"storage":"Kept","id":"abc","token":5,"ttl":1440,"data":"n|i:7;","is_last":true}
session.Close {"storage":"Kept","id":"abc","token":5}
-- unchanged: 6
session.Open {"storage":"Kept","id":"abc","doing":"a script","wait":30000,"ttl":1440}
session.Write {"storage":"Kept","id":"abc","token":5,"ttl":1440,"data":"n|i:6;","is_last":true}
-- unchanged and young: 6
session.Open {"storage":"Kept","id":"abc","doing":"a script","wait":30000,"ttl":1440}
session.Close {"storage":"Kept","id":"abc","token":5}
-- twice: 6
session.Open {"storage":"Kept","id":"abc","doing":"a script","wait":30000,"ttl":1440}
session.Write {"storage":"Kept","id":"abc","token":5,"ttl":1440,"data":"n|i:7;"}
session.Write {"storage":"Kept","id":"abc","token":5,"ttl":1440,"data":"n|i:8;"}
session.Close {"storage":"Kept","id":"abc","token":5}
refused: The session can't be had of the server: sessions: no such storage: kept
locked: The session is locked by process 4711 (GET /) for 1.5 s: waited 30.0 s, which is pronghorn.session_lock_timeout
locked by what is none: The session is locked
no frame: The session can't be had of the server: what listens there does not speak RPC
a length: The session can't be had of the server: what listens there does not speak RPC
words: The session can't be had of the server: what listens there does not speak RPC
a name: The session can't be had of the server: the answer is one to another call
another call: The session can't be had of the server: the answer is one to another call
no JSON: The session can't be had of the server: the answer is no JSON
no object: The session can't be had of the server: the answer is no JSON
other types: empty
nothing: The session can't be had of the server: the server closed the connection
session_start(): Failed to read session data: pronghorn (path: kept)
