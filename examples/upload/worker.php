<?php

// Uploaded files. Start it from the repository's root with
//     pronghorn serve -c examples/upload/pronghorn.yaml
// and send it a file: curl -F title=README -F 'files[]=@README.md' http://127.0.0.1:8080/

declare(strict_types=1);

use Pronghorn\File;
use Pronghorn\Request;
use Pronghorn\Response;

// With Composer: require __DIR__ . '/vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';

Pronghorn\serve(function (Request $request): Response {
    if ($request->method !== 'POST') {
        return new Response(<<<'HTML'
            <form method="post" enctype="multipart/form-data">
                <input name="title"> <input type="file" name="files[]" multiple> <button>Send</button>
            </form>
            HTML, 200, ['Content-Type' => 'text/html; charset=utf-8']);
    }
    $files = array_filter($request->files()['files'] ?? [], fn (File $file) => $file->error === UPLOAD_ERR_OK);

    // What is not moved is gone after the reply: $file->moveTo('/srv/files/...');
    return Response::json([
        'title' => $request->form()['title'] ?? null,
        'files' => array_map(fn (File $file) => [
            'name' => $file->name,
            'type' => $file->type,
            'size' => $file->size,
            'sha256' => hash_file('sha256', $file->path()),
        ], array_values($files)),
    ]);
});
