--TEST--
A session handler is closed whatever its other functions throw, so that no lock stays
--EXTENSIONS--
pronghorn
session
--INI--
session.save_path={TMP}
session.use_cookies=0
session.use_strict_mode=0
session.gc_probability=0
session.cache_limiter=
--FILE--
<?php
// Handlers can't be set when something was printed.
ob_start();

/** Tells what is called, and throws in one of its functions. */
final class Handler implements SessionHandlerInterface
{
    public function __construct(private readonly string $throws)
    {
    }

    private function called(string $name, mixed $result): mixed
    {
        echo " $name";

        return $name === $this->throws ? throw new Exception("in $name") : $result;
    }

    public function open(string $path, string $name): bool
    {
        return $this->called('open', true);
    }

    public function read(string $id): string|false
    {
        return $this->called('read', '');
    }

    public function write(string $id, string $data): bool
    {
        return $this->called('write', true);
    }

    public function destroy(string $id): bool
    {
        return $this->called('destroy', true);
    }

    public function gc(int $age): int|false
    {
        return 0;
    }

    public function close(): bool
    {
        return $this->called('close', true);
    }

    public function create_sid(): string
    {
        return bin2hex(random_bytes(16));
    }

    public function validateId(string $id): bool
    {
        return true;
    }
}

final class NotSerializable
{
    public function __serialize(): array
    {
        throw new Exception('in __serialize');
    }
}

$tell = function (string $what, SessionHandlerInterface $handler, callable $during): void {
    echo "$what:";
    try {
        session_set_save_handler($handler, false);
        session_id('closed-by-pronghorn');
        session_start();
        $during();
        session_write_close();
    } catch (Exception $thrown) {
        echo ', thrown ', $thrown->getMessage();
        while ($thrown = $thrown->getPrevious()) {
            echo ' and ', $thrown->getMessage();
        }
    }
    echo session_status() === PHP_SESSION_NONE ? "\n" : ", still open\n";
};

foreach (['nothing', 'open', 'read', 'write', 'close'] as $function) {
    $tell($function, new Handler($function), function () {
        $_SESSION['a'] = 1;
    });
}
$tell('destroy', new Handler('destroy'), session_destroy(...));
$tell('the value', new Handler(''), function () {
    $_SESSION['a'] = new NotSerializable();
});
$tell('two', new class implements SessionHandlerInterface {
    public function open(string $path, string $name): bool
    {
        return true;
    }

    public function read(string $id): string|false
    {
        return '';
    }

    public function write(string $id, string $data): bool
    {
        throw new Exception('in write');
    }

    public function destroy(string $id): bool
    {
        return true;
    }

    public function gc(int $age): int|false
    {
        return 0;
    }

    public function close(): bool
    {
        throw new Exception('in close');
    }

    public function create_sid(): string
    {
        return bin2hex(random_bytes(16));
    }

    public function validateId(string $id): bool
    {
        return true;
    }
}, function () {
    $_SESSION['a'] = 1;
});

/** Of PHP's own handler for files, whose locks are looked at. */
class Files extends SessionHandler
{
    public function write(string $id, string $data): bool
    {
        throw new Exception('in write');
    }
}

$file = session_save_path() . '/sess_closed-by-pronghorn';
$tellLock = function (string $what, SessionHandlerInterface $handler) use ($tell, $file): void {
    $tell($what, $handler, function () {
        $_SESSION['a'] = 1;
    });
    $lock = fopen($file, 'c');
    echo flock($lock, LOCK_EX | LOCK_NB) ? "free\n" : "locked\n";
};
$tellLock('files', new Files());
$tellLock('files that it does not close', new class extends Files {
    public function close(): bool
    {
        throw new Exception('in close');
    }
});
unlink($file);
ini_set('session.save_handler', 'files');
echo ini_get('session.save_handler'), ' ', session_module_name(), ' ';
session_set_save_handler(new Handler(''));
session_set_save_handler(new Handler(''));
echo ini_get('session.save_handler'), ' ', session_module_name(), "\n";
ob_end_flush();
?>
--EXPECT--
nothing: open read write close
open: open close, thrown in open
read: open read close, thrown in read
write: open read write close, thrown in write
close: open read write close, thrown in close
destroy: open read destroy close, thrown in destroy
the value: open read close, thrown in __serialize
two:, thrown in close and in write
files:, thrown in write
free
files that it does not close:, thrown in close and in write
free
files files user user
