<?php

// Where the applications write: sessions, compiled views, databases. Never into the repository.

declare(strict_types=1);

/**
 * The folder of one application below the one that PRONGHORN_APPS_DATA names, or below the folder
 * for temporary files; made if it is missing. Every process of an application gets the same.
 */
function data_folder(string $app): string
{
    $given = (string) \getenv('PRONGHORN_APPS_DATA');
    $root = $given === '' ? \sys_get_temp_dir() . '/pronghorn-apps-' . \posix_geteuid() : $given;
    $folder = "$root/$app";
    // Several processes may begin at once: one of them makes it.
    if (!@\mkdir($folder, 0700, true) && !\is_dir($folder)) {
        throw new \RuntimeException("$folder cannot be made: set PRONGHORN_APPS_DATA to a folder of your own.");
    }
    // Anybody may write into the folder for temporary files, and what lies here is run as PHP.
    if ($given === '' && \fileowner($root) !== \posix_geteuid()) {
        throw new \RuntimeException("$root is another user's: set PRONGHORN_APPS_DATA to a folder of your own.");
    }

    return $folder;
}

/**
 * An SQLite database that the first process fills. The others find it complete: it gets its name
 * when it is.
 *
 * @param callable(PDO): void $fill
 */
function database(string $folder, callable $fill): string
{
    $file = "$folder/data.sqlite";
    if (\is_file($file)) {
        return $file;
    }
    // Not by a name of its own for each process: after random_bytes() or getmypid(), workers are
    // not forked by themselves.
    $lock = \fopen("$file.lock", 'c');
    \flock($lock, \LOCK_EX);
    if (!\is_file($file)) {
        $pdo = new \PDO("sqlite:$file.new");
        $pdo->beginTransaction();
        $fill($pdo);
        $pdo->commit();
        $pdo = null;
        \rename("$file.new", $file);
    }
    \fclose($lock);

    return $file;
}
