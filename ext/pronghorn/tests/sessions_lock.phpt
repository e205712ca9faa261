--TEST--
One request at a time has a session: others wait, are told for whom, and take it from the dead
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
$holds = 'session_id("abc"); session_start(); $_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1; echo "held\n"; fgets(STDIN);';
$adds = 'session_id("abc"); echo session_start() ? $_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1 : "not had";';

$holder = $storage->start($holds);
echo $holder->line(), "\n";
$waiter = $storage->start('echo "begins\n";' . $adds);
echo $waiter->line(), "\n";
echo 'Read without the lock: ';
$reads = 'session_id("abc"); session_start(["read_and_close" => true]); echo $_SESSION["n"] ?? "none";';
echo $storage->run($reads), "\n";
$holder->say('go on');
$holder->end();
echo 'What it has kept: ', $waiter->end(), "\n";

echo "Many at once: ";
$all = [];
for ($i = 0; $i < 4; $i++) {
    $all[] = $storage->start('for ($i = 0; $i < 50; $i++) { session_id("many"); session_start(); $_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1; session_write_close(); }');
}
foreach ($all as $one) {
    echo $one->end();
}
echo $storage->run('session_id("many"); session_start(); echo $_SESSION["n"];'), "\n";

echo "No more patience: ";
$holder = $storage->start($holds);
$holder->line();
$quick = ['pronghorn.session_lock_timeout' => 0.2];
$tries = 'session_id("abc"); set_error_handler(function ($_, $text) { echo $text, "\n"; }); var_dump(session_start());';
echo str_replace((string) $holder->pid(), 'PID', $storage->run($tries, $quick)), "\n";
echo "Told while it waits: ";
$log = $storage->run($adds, ['pronghorn.session_lock_timeout' => 1.3, 'display_errors' => 0]);
echo str_replace((string) $holder->pid(), 'PID', $log), "\n";

echo "Of a killed one: ";
$begun = microtime(true);
$waiter = $storage->start('echo "begins\n";' . $adds);
$waiter->line();
$holder->kill();
echo $waiter->end(), microtime(true) - $begun < 10 ? " soon\n" : " late\n";

echo "Of another process with its number: ";
$holder = $storage->start($holds);
$holder->line();
// As if it had been started at another time.
$storage->run('$c = Pronghorn\Cache\SharedMemory::open("sessions"); $lock = $c->get("session-lock:abc");
    $lock[8] = chr(ord($lock[8]) ^ 1); $c->set("session-lock:abc", $lock);');
echo $storage->run($adds), "\n";
// It has lost the lock, and does not give away that of another one.
$next = $storage->start($holds);
$next->line();
$holder->end();
echo $storage->run('var_dump(Pronghorn\Cache\SharedMemory::open("sessions")->get("session-lock:abc") !== null);'), "\n";
$next->end();
echo $storage->run('var_dump(Pronghorn\Cache\SharedMemory::open("sessions")->get("session-lock:abc"));'), "\n";

echo "What somebody has scribbled is nobody's lock: ";
$storage->run('Pronghorn\Cache\SharedMemory::open("sessions")->set("session-lock:abc", "scribble");');
echo $storage->run($adds), "\n";
?>
--EXPECTF--
held
begins
Read without the lock: none
What it has kept: 2%S
Many at once: 200
No more patience: session_start(): The session is locked by process PID (a script) for %f s: waited 0.2 s, which is pronghorn.session_lock_timeout
session_start(): Failed to read session data: pronghorn (path: %S)
bool(false)
Told while it waits: not had%wa script waits for the lock of its session, which process PID has for %f s: a script
Of a killed one: 3%S soon
Of another process with its number: 4%S
bool(true)
NULL
What somebody has scribbled is nobody's lock: %d
