<!doctype html>
<title>Landing</title>
{{-- As long as the page of a new application, most of which is style. --}}
<style>{{ \str_repeat(".panel { margin: 0 auto; padding: 1.5rem; border-radius: .5rem; max-width: 60rem }\n", 200) }}</style>
<h1>Landing</h1>
@foreach (['Documentation', 'Courses', 'News', 'Packages'] as $title)
<section class="panel"><h2>{{ $title }}</h2><p>Where to read on about {{ \strtolower($title) }}.</p></section>
@endforeach
