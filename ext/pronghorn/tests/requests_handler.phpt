--TEST--
What a handler sets by header(), cookies, status and session goes into the reply that it returns
--EXTENSIONS--
pronghorn
session
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--INI--
session.save_path={TMP}
session.gc_probability=0
session.cache_limiter=
--FILE--
<?php
require __DIR__ . '/requests.inc';

use Pronghorn\Internal\Exchange;
use Pronghorn\Request;
use Pronghorn\Response;

$worker = new RequestWorker();
$show = fn (callable $handler, array $request = [], string $body = '') => fwrite(STDOUT, $worker->reply($handler, $request, $body) . "\n");

$show(fn (Request $request) => 'plain');
$show(function (Request $request) { header('X-A: 1'); header('X-A: 2', false); http_response_code(404); setcookie('a', 'b'); return 'string'; });
$show(function (Request $request) { header('X-A: lost'); header('x-b: 2'); setcookie('a', 'b'); return new Response('made', 201, ['x-a' => 'kept', 'Set-Cookie' => 'c=d']); });
$show(function (Request $request) { header('Location: /'); return ['json']; });
$show(function (Request $request) { header('X-A: 1'); return (function () { yield 'first'; echo json_encode(headers_sent()), "\n"; yield 'second'; })(); });
$show(function (Request $request) { header('Location: /login'); exit; });
$show(function (Request $request) { echo 'echoed'; header('X-A: 1'); exit; });
$show(function (Request $request) { exit; });
$show(function (Request $request) { header('X-A: 1'); header('X-B: 2'); header_register_callback(function () { header_remove('X-A'); header('X-C: 3'); echo 'printed'; }); return 'called back '; });
$show(function (Request $request) { header_register_callback(fn () => header('X-C: 3')); return (function () { yield 'first'; yield 'second'; })(); });
$show(function (Request $request) { header_register_callback(fn () => throw new Exception('of the callback')); return 'served'; });
$show(fn (Request $request) => 'no callback is left');
$show(function (Request $request) { header('X-A: 1'); throw new Exception('thrown'); });
$show(fn (Request $request) => json_encode([headers_list(), http_response_code(), headers_sent(), ob_get_level()]));
$show(fn (Request $request) => json_encode([$_GET, $_POST, $_COOKIE, file_get_contents('php://input'), $request->form()]),
    ['uri' => 'http://a/?a=1', 'method' => 'POST', 'headers' => [['content-type', 'application/x-www-form-urlencoded'], ['cookie', 'c=3']]], 'b=2');
$show(fn (Request $request) => json_encode([$_GET, $_POST, $_COOKIE, file_get_contents('php://input')]), ['method' => 'POST', 'headers' => [['content-type', 'application/json']]], '[1]');

$count = function (Request $request) { session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; return (string) $_SESSION['n']; };
$cookie = strtok($worker->answer($count)[0]->header('set-cookie')[0], ';');
$mine = ['headers' => [['cookie', $cookie]]];
$show($count, $mine);
$show(function (Request $request) { session_start(); $_SESSION['n'] = 10; register_shutdown_function(function () { $_SESSION['n'] = 20; }); return 'set at the end'; }, $mine);
$show(function (Request $request) { session_start(); return (function () { yield (string) $_SESSION['n']; $_SESSION['n']++; })(); }, $mine);
$show($count, $mine);
$show(fn (Request $request) => json_encode([session_id(), isset($_SESSION), session_status() === PHP_SESSION_NONE]));
$show(function (Request $request) { session_set_save_handler(new class extends SessionHandler { public function write(string $id, string $data): bool { throw new Exception('the disk is full'); } }); session_start(); $_SESSION['a'] = 1; return 'served'; }, $mine);
$show($count, $mine);
$show(function (Request $request) { $_COOKIE['late'] = new class { public function __destruct() { @session_start(); $_SESSION['n'] = 50; } }; return 'late'; });
$show(fn (Request $request) => json_encode([session_id(), isset($_SESSION), $_COOKIE]));
$show(function (Request $request) { $all = &$_GET; $all['a'] = 'by reference'; $GLOBALS['kept'] = &$_POST; $_POST['b'] = 1; unset($_COOKIE); return 'changed'; });
$show(fn (Request $request) => json_encode([$_GET, $_POST, $_COOKIE]));
$show(function (Request $request) { Pronghorn\Call::current()->defer(function () { fwrite(STDOUT, json_encode($_GET) . "\n"); echo 'of a visitor'; register_shutdown_function(function () { fwrite(STDOUT, "at the end\n"); echo 'of another'; }); }); return 'deferred'; }, ['uri' => 'http://a/?a=1']);
$show(function (Request $request) {
    Pronghorn\Call::current()->defer(function () { exit; });
    Pronghorn\Call::current()->defer(function () { fwrite(STDOUT, "after an exit\n"); });
    return ['done by the loop'];
});
$show(fn (Request $request) => json_encode($_GET));
?>
--EXPECTF--
reply 200 plain
reply 404 [X-A: 1] [X-A: 2] [Set-Cookie: a=b] string
reply 201 [x-a: kept] [Set-Cookie: c=d] [Set-Cookie: a=b] [x-b: 2] made
reply 302 [Content-Type: application/json] [Location: /] ["json"]
reply 200 [X-A: 1] first | chunk 0 true
second | chunk 0
reply 302 [Location: /login]
reply 200 [X-A: 1] echoed
error 0
reply 200 [X-B: 2] [Content-type: text/html; charset=UTF-8] [X-C: 3] called back printed
reply 200 [Content-type: text/html; charset=UTF-8] [X-C: 3] first | chunk 0 second | chunk 0
reply 200 [Content-type: text/html; charset=UTF-8] served
Warning: Uncaught Exception: of the callback in %s:%d
Stack trace:
%a
  thrown in %s on line %d
reply 200 no callback is left
error 0
reply 200 [[],200,false,1]
reply 200 [{"a":"1"},{"b":"2"},{"c":"3"},"b=2",{"b":"2"}]
reply 200 [[],[],[],"[1]"]
reply 200 2
reply 200 set at the end
reply 200 20 | chunk 0
reply 200 22
reply 200 ["",false,true]
reply 200 [Content-type: text/html; charset=UTF-8] served
Warning: Uncaught Exception: the disk is full in %s:%d
Stack trace:
%a
  thrown in %s on line %d
reply 200 23
reply 200 late
reply 200 ["",false,[]]
reply 200 changed
reply 200 [[],[],[]]
{"a":"1"}
pronghorn: GET / has printed 12 bytes after its reply, which nobody gets. hint: error_log() and Pronghorn\Log write to the log
at the end
pronghorn: GET / has printed 10 bytes after its reply, which nobody gets. hint: error_log() and Pronghorn\Log write to the log
reply 200 deferred | free 0
after an exit
reply 200 [Content-Type: application/json] ["done by the loop"] | free 0
reply 200 []
