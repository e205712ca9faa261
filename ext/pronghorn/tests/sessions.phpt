--TEST--
A session is kept in a storage: read, written, ended, and given another id
--EXTENSIONS--
pronghorn
session
--SKIPIF--
<?php
$is_valgrind = getenv('USE_ZEND_ALLOC') === '0' && !str_contains((string) getenv('LD_PRELOAD'), 'asan');
if ($is_valgrind) die('skip valgrind makes each process take seconds, and the test waits for times');
?>
--FILE--
<?php
require __DIR__ . '/sessions.inc';

$storage = new Storage();
$visit = 'session_id("abc"); session_start(); echo $_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1;';
echo $storage->run($visit), ' ', $storage->run($visit), ' ', $storage->run($visit), "\n";

echo "Another id: ";
$code = 'session_id("abc"); session_start(); session_regenerate_id(true); echo session_id();';
$id = $storage->run($code);
echo strlen($id), ' ', $storage->run("session_id('$id'); session_start(); echo \$_SESSION['n'];"), ' ';
echo $storage->run($visit), "\n";

echo "Ended: ";
$storage->run('session_id("abc"); session_start(); session_destroy();');
echo $storage->run($visit), "\n";

echo "What is unchanged lives on: ";
echo $storage->run('session_id("aged"); session_start(); $_SESSION["n"] = 1;', ['session.gc_maxlifetime' => 1]);
$lives = 'session_id("aged"); session_start(); session_write_close(); echo $_SESSION["n"] ?? "gone";';
echo $storage->run($lives, ['session.gc_maxlifetime' => 100]), ' ';
usleep(1_100_000);
echo $storage->run($lives), "\n";

echo "Of an empty one there is the number: ";
$storage->run('session_id("empty"); session_start();');
echo $storage->run('var_dump(Pronghorn\Cache\SharedMemory::open("sessions")->get("session:empty"));'), "\n";

echo "Ids that nobody made: ";
$strict = ['session.use_strict_mode' => 1];
echo $storage->run('session_id("unknown"); session_start(); echo session_id() === "unknown" ? "kept" : "changed";', $strict), ' ';
echo $storage->run('session_id("' . $id . '"); session_start(); echo session_id() === "' . $id . '" ? "kept" : "changed";', $strict), "\n";
$says = 'set_error_handler(function ($_, $text) { echo $text, "\n"; });';
echo $storage->run($says . 'session_id("a_b"); session_start();'), "\n";

echo "Too long: ";
echo $storage->run($says . 'session_id("long"); session_start(); $_SESSION["x"] = str_repeat("x", 70000); session_write_close();
    session_start(); echo isset($_SESSION["x"]) ? "kept" : "not kept";'), "\n";

echo $storage->run('echo Pronghorn\Cache\SharedMemory::open("sessions")->longest();'), "\n";

echo "By name: ";
echo $storage->run($visit, ['session.save_path' => 'It'], '9=it'), ' ';
echo $storage->run($visit, ['session.save_path' => '/var/lib/php/sessions']), ' ';
echo $storage->run($visit, [], '9=only'), "\n";
$first = 'set_error_handler(function ($_, $text) { echo $text, "\n"; exit; }); session_start();';
echo $storage->run($first, ['session.save_path' => 'nope']), "\n";
echo $storage->run($first, [], "8=a\n9=b"), "\n";
echo $storage->run('ini_set("session.save_handler", "pronghorn"); echo ini_get("session.save_handler");', ['session.save_handler' => 'files']), "\n";
?>
--EXPECTF--
1 2 3
Another id: %d 3 1
Ended: 1
What is unchanged lives on: 1 1
Of an empty one there is the number: string(0) ""
Ids that nobody made: changed kept
session_start(): The session id is too long or has illegal characters: only letters, digits, "-" and "," are allowed
session_start(): Failed to read session data: pronghorn (path: %S)
Too long: session_write_close(): The session has %d bytes, and an entry of its storage at most 65536: give the storage a larger max_size
session_write_close(): Failed to write session data%S
not kept
65504
By name: 2 3 4
session_start(): session.save_path names no storage that this process has mapped or may ask for: nope
session_start(): This process has mapped no storage named sessions and not exactly one other: write `kv: {sessions: {driver: memory}}`, or name a storage by session.save_path
pronghorn
