<?php

declare(strict_types=1);

namespace App;

final class Tables
{
    /** Two users, each with the own name as password. */
    public static function make(\PDO $database): void
    {
        $database->exec(
            'CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, password TEXT, remember_token TEXT)'
        );
        $insert = $database->prepare('INSERT INTO users (name, password) VALUES (?, ?)');
        foreach (['ada', 'grace'] as $name) {
            // As cheap as can be, so that a login measures Laravel.
            $insert->execute([$name, \password_hash($name, \PASSWORD_BCRYPT, ['cost' => 4])]);
        }
    }
}
