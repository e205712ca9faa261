<?php

declare(strict_types=1);

use App\Jobs\Greet;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Route;

Route::get('/', static function (Request $request) {
    $request->session()->increment('visits');

    return view('home', ['visits' => $request->session()->get('visits'), 'greeted' => Cache::get('greeted', 'nobody')]);
});
Route::post('/', static function (Request $request) {
    $form = $request->validate(['name' => 'required|string|max:50'], ['name.required' => 'Who are you?']);
    Greet::dispatch($form['name']);

    return redirect('/')->with('status', 'You will be greeted.');
});
