--TEST--
A message for stderr goes to the server and not into the page, also where html_errors is on
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--INI--
display_errors=stderr
html_errors=1
log_errors=0
--FILE--
<?php
require __DIR__ . '/requests.inc';

use Pronghorn\Request;

$worker = new RequestWorker();
$show = fn (callable $handler) => fwrite(STDOUT, $worker->reply($handler) . "\n");

$show(function (Request $request) { echo $undefined; return 'page'; });
$show(function (Request $request) { ini_set('display_errors', '1'); echo $undefined; return 'asked for'; });
$show(fn (Request $request) => ini_get('html_errors') . ini_get('display_errors'));
?>
--EXPECTF--
message 0 PHP Warning:  Undefined variable $undefined in %smessages.php on line %d | reply 200 page
reply 200 <br />
<b>Warning</b>:  Undefined variable $undefined in <b>%smessages.php</b> on line <b>%d</b><br />
asked for
reply 200 1stderr
