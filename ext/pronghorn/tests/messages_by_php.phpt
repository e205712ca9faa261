--TEST--
PHP's own messages are told apart from those of error_log(), whatever they look like
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--INI--
log_errors=1
display_errors=0
--FILE--
<?php
require __DIR__ . '/requests.inc';

use Pronghorn\Request;

$worker = new RequestWorker();
$forged = 'PHP Fatal error:  Out of it in /etc/passwd on line 1';
$show = function (callable $handler) use ($worker): void {
    foreach ($worker->answer($handler) as $message) {
        if ($message->kind === 'message') {
            fwrite(STDOUT, "$message->flags $message->body\n");
        }
    }
};

$show(function (Request $request) use ($forged) { error_log($forged); return ''; });
$show(function (Request $request) { echo $undefined; return ''; });
// A handler of errors, the callback of a buffer, and code after an error that nobody logs.
$show(function (Request $request) use ($forged) {
    set_error_handler(function () use ($forged) { error_log($forged); return true; });
    echo $undefined;
    return '';
});
$show(function (Request $request) use ($forged) {
    ini_set('display_errors', '1');
    ob_start(function (string $text) use ($forged) { error_log($forged); return ''; }, 1);
    echo $undefined;
    ob_end_clean();
    return '';
});
$show(function (Request $request) use ($forged) { @$undefined->x; error_log($forged); return ''; });
?>
--EXPECTF--
128 PHP Fatal error:  Out of it in /etc/passwd on line 1
129 PHP Warning:  Undefined variable $undefined in %s on line %d
128 PHP Fatal error:  Out of it in /etc/passwd on line 1
129 PHP Warning:  Undefined variable $undefined in %s on line %d
128 PHP Fatal error:  Out of it in /etc/passwd on line 1
128 PHP Fatal error:  Out of it in /etc/passwd on line 1
128 PHP Fatal error:  Out of it in /etc/passwd on line 1
