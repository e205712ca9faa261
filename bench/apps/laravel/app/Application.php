<?php

declare(strict_types=1);

namespace App;

/**
 * Writes nothing where its source is, and takes its configuration from one file, as after
 * `artisan config:cache`.
 */
final class Application extends \Illuminate\Foundation\Application
{
    public function __construct(string $source, private string $data)
    {
        foreach (['cache', 'sessions', 'uploads', 'views'] as $folder) {
            if (!\is_dir("$data/$folder")) {
                @\mkdir("$data/$folder"); // another process may have been faster
            }
        }
        $this->storagePath = $data;
        parent::__construct($source);
    }

    /** @param string $path */
    public function bootstrapPath($path = ''): string
    {
        return $path === '' ? $this->data : "$this->data/$path";
    }

    public function getCachedConfigPath(): string
    {
        return $this->basePath('config.php');
    }
}
