--TEST--
A front controller in a kept worker: its output is the reply, and each call is a request of PHP's own
--EXTENSIONS--
pronghorn
session
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--INI--
session.save_path={TMP}
session.gc_probability=0
variables_order=EGPCS
request_order=GP
--FILE--
<?php
require __DIR__ . '/requests.inc';

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;

register_shutdown_function(function () { fwrite(STDOUT, "the end of the worker\n"); });
$_SERVER['APP_ENV'] = 'boot';
$worker = new RequestWorker();
$show = fn (callable $handler, array $request = [], string $body = '') => fwrite(STDOUT, $worker->reply($handler, $request, $body) . "\n");
$form = ['headers' => [['content-type', 'application/x-www-form-urlencoded']], 'method' => 'POST'];

$show(function () { echo 'hello'; return 7; });
$show(function () { });
$show(function () { printf('%d %s', ob_get_level(), json_encode(headers_sent())); flush(); echo json_encode(headers_sent()); });
$show(function () { header('X-A: 1'); header('X-A: 2', false); setcookie('a', 'b'); http_response_code(404); echo 'lost'; });
$show(function () { header('Location: /login'); exit; });
$show(function () { ob_start(fn ($text) => strtoupper($text)); echo 'left open'; });
$show(function () { header('Status: 202 Taken'); header('Content-Type: text/plain'); });
$show(function () { echo json_encode([$_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES]); }, ['uri' => 'http://a/?b[]=1&c=2', 'headers' => [['cookie', 'd=3'], ['cookie', 'e=4']]]);
$show(function () { echo json_encode([$_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES, file_get_contents('php://input')]); }, $form, 'f[g]=5');
$show(function () { echo json_encode([$_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES, file_get_contents('php://input')]); });
$show(function () { $GLOBALS['kept'] = fopen('php://input', 'r'); echo fread($GLOBALS['kept'], 2), '…', file_get_contents('php://input'); }, ['method' => 'PUT'], 'body');
$show(function () { echo get_debug_type($GLOBALS['kept']); });
$show(function () { echo filter_input(INPUT_GET, 'a'), filter_input(INPUT_SERVER, 'REQUEST_METHOD'), json_encode(filter_input(INPUT_COOKIE, 'a')); }, ['uri' => 'http://a/?a=1']);

// $_SERVER
$server = function () {
    $names = ['APP_ENV', 'REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SERVER_NAME', 'SERVER_PORT', 'HTTPS', 'HTTP_HOST', 'HTTP_X_A', 'HTTP_PROXY', 'CONTENT_TYPE', 'PHP_AUTH_USER', 'PHP_AUTH_PW', 'REQUEST_TIME', 'REMOTE_ADDR', 'SCRIPT_NAME', 'argv', 'mine'];
    echo json_encode(array_intersect_key($_SERVER, array_flip($names)), JSON_UNESCAPED_SLASHES);
    $_SERVER['APP_ENV'] = 'changed';
    $_SERVER['mine'] = 'visitor';
};
$show($server, ['uri' => 'https://[::1]:8443/p/%2F?q', 'started' => 5_000_000, 'headers' => [['x-a', '1'], ['x-a', '2'], ['proxy', 'evil'], ['authorization', 'Basic ' . base64_encode('al:ice')]]]);
$show($server);

// Files
$path = tempnam(sys_get_temp_dir(), 'up');
file_put_contents($path, 'file');
$parts = Codec::form([
    ['name' => 'a[]', 'value' => '1'],
    ['kind' => 1, 'name' => 'f', 'value' => 'dir/name.txt', 'type' => 'text/plain', 'path' => $path, 'size' => 4],
]);
$show(function () use ($path) {
    $file = $_FILES['f'];
    echo json_encode($_POST), " $file[name] $file[size] ", json_encode([is_uploaded_file($path), is_uploaded_file(__FILE__)]);
    echo json_encode(move_uploaded_file($file['tmp_name'], "$path.moved")), json_encode(is_uploaded_file($path));
}, ['method' => 'POST', 'flags' => Native::FORM], $parts);
$show(function () use ($path) { echo json_encode([$_POST, $_FILES, is_uploaded_file($path), file_get_contents("$path.moved")]); });
unlink("$path.moved");

// Sessions
$show(function () { echo 'sent '; flush(); echo json_encode(@session_start()); $_SESSION['user'] = 'A'; });
$show(function () { echo json_encode($_SESSION ?? null); });
$count = function () { session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n']; };
$reply = $worker->answer($count)[0];
$cookie = strtok($reply->header('set-cookie')[0], ';');
fwrite(STDOUT, preg_replace('/=.*/', '', $cookie) . ' ' . implode($reply->header('cache-control')) . "\n");
$show(function () { echo json_encode([session_status() === PHP_SESSION_NONE, session_id(), isset($_SESSION)]); });
$show(fn () => $count(), ['headers' => [['cookie', $cookie]]]);
fwrite(STDOUT, $worker->answer($count)[0]->body . "\n");
$show(fn () => $count(), ['headers' => [['cookie', $cookie]]]);

// Ends
$show(function () { register_shutdown_function(function () { echo ' shut'; register_shutdown_function(function () { echo ' twice'; }); }); echo 'body'; });
$show(function () { register_shutdown_function(function () { echo 'first'; exit; }); register_shutdown_function(function () { echo 'never'; }); exit; });
$show(function () { echo 'discarded'; throw new LogicException('thrown'); });
$show(function () { set_exception_handler(function ($e) { http_response_code(503); echo 'sorry: ', $e->getMessage(); }); throw new LogicException('handled'); });
$show(function () { throw new LogicException('not by the one before'); });
$show(function () { Pronghorn\Call::current()->defer(function () { echo "nobody's\n"; }); echo 'now'; });
$pieces = $worker->answer(function () { echo str_repeat('x', 70000); echo json_encode(headers_sent()); });
fwrite(STDOUT, implode(' ', array_map(fn ($piece) => "$piece->kind " . strlen($piece->body), $pieces)) . ' ' . substr(end($pieces)->body, -4) . "\n");
$show(function () { header_register_callback(function () { header('X-Callback: 1'); }); echo 'called back'; });
$show(function () { echo json_encode(connection_status()), Pronghorn\Call::current()->request()->method; }, ['method' => 'HEAD']);
fwrite(STDOUT, "over\n");
?>
--EXPECTF--
reply 200 [Content-type: text/html; charset=UTF-8] hello
reply 200 [Content-type: text/html; charset=UTF-8]
reply 200 [Content-type: text/html; charset=UTF-8] 0 false | chunk 0 true
reply 404 [X-A: 1] [X-A: 2] [Set-Cookie: a=b] [Content-type: text/html; charset=UTF-8] lost
reply 302 [Location: /login] [Content-type: text/html; charset=UTF-8]
reply 200 [Content-type: text/html; charset=UTF-8] LEFT OPEN
reply 202 [Content-type: text/plain;charset=UTF-8]
reply 200 [Content-type: text/html; charset=UTF-8] [{"b":["1"],"c":"2"},[],{"d":"3","e":"4"},{"b":["1"],"c":"2"},[]]
reply 200 [Content-type: text/html; charset=UTF-8] [[],{"f":{"g":"5"}},[],{"f":{"g":"5"}},[],"f[g]=5"]
reply 200 [Content-type: text/html; charset=UTF-8] [[],[],[],[],[],""]
reply 200 [Content-type: text/html; charset=UTF-8] bo…body
reply 200 [Content-type: text/html; charset=UTF-8] resource (closed)
reply 200 [Content-type: text/html; charset=UTF-8] 1GETnull
reply 200 [Content-type: text/html; charset=UTF-8] {"APP_ENV":"boot","SCRIPT_NAME":"/requests_front.php","REQUEST_METHOD":"GET","REQUEST_URI":"/p/%2F?q","QUERY_STRING":"q","REMOTE_ADDR":"127.0.0.1","HTTPS":"on","SERVER_NAME":"[::1]","SERVER_PORT":"8443","HTTP_HOST":"[::1]:8443","HTTP_X_A":"1, 2","PHP_AUTH_USER":"al","PHP_AUTH_PW":"ice","REQUEST_TIME":5}
reply 200 [Content-type: text/html; charset=UTF-8] {"APP_ENV":"boot","SCRIPT_NAME":"/requests_front.php","REQUEST_METHOD":"GET","REQUEST_URI":"/","QUERY_STRING":"","REMOTE_ADDR":"127.0.0.1","SERVER_NAME":"127.0.0.1","SERVER_PORT":"8080","HTTP_HOST":"127.0.0.1:8080","REQUEST_TIME":%d}
reply 200 [Content-type: text/html; charset=UTF-8] {"a":["1"]} name.txt 4 [true,false]truefalse
reply 200 [Content-type: text/html; charset=UTF-8] [[],[],false,"file"]
reply 200 [Content-type: text/html; charset=UTF-8] sent | chunk 0 false
reply 200 [Content-type: text/html; charset=UTF-8] null
PHPSESSID no-store, no-cache, must-revalidate
reply 200 [Content-type: text/html; charset=UTF-8] [true,"",false]
reply 200 [Expires: Thu, 19 Nov 1981 08:52:00 GMT] [Cache-Control: no-store, no-cache, must-revalidate] [Pragma: no-cache] [Content-type: text/html; charset=UTF-8] 2
1
reply 200 [Expires: Thu, 19 Nov 1981 08:52:00 GMT] [Cache-Control: no-store, no-cache, must-revalidate] [Pragma: no-cache] [Content-type: text/html; charset=UTF-8] 3
reply 200 [Content-type: text/html; charset=UTF-8] body shut twice
reply 200 [Content-type: text/html; charset=UTF-8] first
error 0
reply 503 [Content-type: text/html; charset=UTF-8] sorry: handled
error 0
pronghorn: GET / has printed 9 bytes after its reply, which nobody gets. hint: error_log() and Pronghorn\Log write to the log
reply 200 [Content-type: text/html; charset=UTF-8] now | free 0
reply 65536 chunk 4468 true
reply 200 [Content-type: text/html; charset=UTF-8] [X-Callback: 1] called back
reply 200 [Content-type: text/html; charset=UTF-8] 0HEAD
over
the end of the worker
